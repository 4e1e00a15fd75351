"""ReBRAC (Tarasov et al. 2023): TD3+BC with penalties of the actor and of the critics apart, and normalised critics.

A row is that of `policy/ddpg.py` with u, its action in [-1, 1]^A, and u', the data's next action, that behind the last
step of the row. a' is the smoothed action of TD3's target for next_obs. With beta_1 = `actor_beta`, beta_2 =
`critic_beta`

    y           = R + discount * (min_i Q_i'(next_obs, a') - beta_2 * |a' - u'|^2)    second part only if not terminated
    critic_loss = sum_i mean(weight * (Q_i(obs, action) - y)^2)
    Q           = min_i Q_i(obs, mu(obs))
    lambda      = 1 / mean(|Q|)     without a gradient
    actor_loss  = -lambda * mean(Q) + beta_1 * mean(|mu(obs) - u|^2)    in the actor's turn

where |.|^2 sums over dimensions. Behind a truncated episode the data has no next action, and y has no penalty. Critics
have layer normalisation; batches are large and networks have three hidden layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from ding_like.policy.offpolicy import Rows
from ding_like.policy.rows import NextActionRows
from ding_like.policy.td3_bc import TD3BCPolicy
from ding_like.utils.bounds import FROM_0, Bounds
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("rebrac")
class ReBRACPolicy(TD3BCPolicy):
    """TD3+BC with one penalty for the actor and another for the critics' targets, and normalised critics."""

    config: dict[str, Any] = dict(
        type="rebrac",
        model=dict(
            # Hidden layers of the actor behind the first.
            actor_head_layer_num=2,
            # Hidden layers of the critics behind the first.
            critic_head_layer_num=2,
            # Layer normalisation of the critics' hidden layers: "LN", or None.
            critic_norm_type="LN",
        ),
        learn=dict(
            batch_size=1024,
            learning_rate_actor=1e-3,
            learning_rate_critic=1e-3,
            # Weight of the squared distance from the data's action in the actor's loss, beta_1.
            actor_beta=0.01,
            # Weight of the squared distance from the data's next action in the critics' targets, beta_2.
            critic_beta=0.01,
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "model.actor_head_layer_num": FROM_0,
        "model.critic_head_layer_num": FROM_0,
        "learn.actor_beta": FROM_0,
        "learn.critic_beta": FROM_0,
    }
    is_judged_by_first: ClassVar[bool] = False
    config_unused: ClassVar[Mapping[str, str]] = {"learn.alpha": "learn.actor_beta weighs cloning"}

    def row_maker(self) -> NextActionRows:
        """Return what makes rows with the data's next actions."""
        return NextActionRows(self._nstep, self._gamma)

    def _weights(self, scale: Tensor, num_actions: int) -> tuple[Tensor, float]:
        return 1.0 / scale, self._cfg.learn.actor_beta * num_actions

    def _next_value(self, prediction: Tensor, action: Tensor, rows: Rows) -> Tensor:
        assert rows.next_action is not None and rows.has_next_action is not None, "the row maker gives both"
        distance = (action - rows.next_action).square().sum(dim=1)
        penalty: Tensor = self._cfg.learn.critic_beta * distance * rows.has_next_action
        return super()._next_value(prediction, action, rows) - penalty
