"""TD3 with behavioural cloning (Fujimoto and Gu 2021): TD3 whose actor stays near the actions of a data set.

A row is that of `policy/ddpg.py`, and the critics learn as TD3's do. With u the row's action in [-1, 1]^A

    lambda     = alpha / mean(|Q_1(obs, mu(obs))|)     without a gradient
    actor_loss = -lambda * mean(Q_1(obs, mu(obs))) + mean((mu(obs) - u)^2)     every `actor_update_freq` updates

so that alpha weighs the value against cloning whatever the scale of the rewards: 0 is cloning alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ding_like.policy.ddpg import TD3Policy
from ding_like.policy.offline import FromData
from ding_like.policy.offpolicy import Rows
from ding_like.rl_utils.td import least_value
from ding_like.utils.bounds import FROM_0, FROM_1, Bounds
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("td3_bc")
class TD3BCPolicy(FromData, TD3Policy):
    """TD3 for a data set, whose actor clones the data's actions while it maximises their value."""

    config: dict[str, Any] = dict(
        type="td3_bc",
        model=dict(
            # Units of a hidden layer of the actor.
            actor_head_hidden_size=256,
            # Units of a hidden layer of the critics.
            critic_head_hidden_size=256,
        ),
        learn=dict(
            learning_rate_actor=3e-4,
            learning_rate_critic=3e-4,
            # Weight of the value, in units of its mean, against cloning in the actor's loss.
            alpha=2.5,
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "model.actor_head_hidden_size": FROM_1,
        "model.critic_head_hidden_size": FROM_1,
        "learn.alpha": FROM_0,
    }

    def _improve(self, rows: Rows) -> Tensor:
        hand = self._by_hand
        if hand is None:
            action = self._actor.network(rows.obs)
            judged = (self._first_critic if self.is_judged_by_first else self._critic.network)(rows.obs, action)
        else:
            action = torch.from_numpy(hand.act(rows.obs))
            judged = hand.judge(rows.obs, action.numpy(), by_first=self.is_judged_by_first)
        value, slope = least_value(judged)
        of_value, of_cloning = self._weights(value.detach().abs().mean(), action.shape[1])
        error = action - rows.action
        loss = of_cloning * error.square().mean() - of_value * value.mean()
        if hand is None:
            return self._actor.backward(loss)
        batch, num_actions = action.shape
        by_action = hand.slope_by_action(slope * (of_value / -batch), num_actions)
        return hand.improve(loss, by_action + (2.0 * of_cloning / error.numel()) * error.numpy())

    # Whether the first critic alone judges the actor's actions, or the lesser value of both counts.
    is_judged_by_first: ClassVar[bool] = True
    why_alone = "divides by the mean value of whole batches"

    def _weights(self, scale: Tensor, num_actions: int) -> tuple[Tensor, float]:
        """Return the weights of the value and of the mean squared error, for values of a mean absolute `scale` []."""
        return self._cfg.learn.alpha / scale, 1.0
