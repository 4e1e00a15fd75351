"""EDAC (An et al. 2021): SAC for a data set, with many critics that are made to differ.

The least of N values is pessimistic about actions that the data does not have, as far as the critics disagree there; so
they are kept from having the same slope. A row is that of `policy/sac.py`; with g_i = grad_a Q_i(obs, a) at a = action,
scaled to length 1, the losses are SAC's, with one term more:

    critic_loss = sum_i mean(weight * (Q_i(obs, action) - y)^2 / 2) + eta * mean(sum_{i != j} <g_i, g_j>) / (N - 1)

`with_q_entropy=False` leaves the entropy out of y. With eta = 0 it is SAC-N.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from ding_like.policy.offline import FromData
from ding_like.policy.offpolicy import Rows
from ding_like.policy.sac import Learned, SACPolicy
from ding_like.utils.bounds import FROM_0, FROM_1, Bounds
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("edac")
class EDACPolicy(FromData, SACPolicy):
    """SAC for a data set, with an ensemble of critics whose gradients by the action are kept apart."""

    config: dict[str, Any] = dict(
        type="edac",
        model=dict(
            # Critics, the least of whose values counts; DI-engine's `ensemble_num`.
            num_critics=10,
            # Units of a hidden layer of the actor.
            actor_head_hidden_size=256,
            # Hidden layers of the actor behind the first.
            actor_head_layer_num=2,
            # Units of a hidden layer of the critics.
            critic_head_hidden_size=256,
            # Hidden layers of the critics behind the first.
            critic_head_layer_num=2,
        ),
        learn=dict(
            alpha=1.0,
            # Weight of the likeness of the critics' gradients in their loss.
            eta=1.0,
            # Count the entropy of next actions in the critics' targets.
            with_q_entropy=True,
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "model.num_critics": Bounds(2),
        "model.actor_head_hidden_size": FROM_1,
        "model.actor_head_layer_num": FROM_0,
        "model.critic_head_hidden_size": FROM_1,
        "model.critic_head_layer_num": FROM_0,
        "learn.eta": FROM_0,
    }
    config_unused: ClassVar[Mapping[str, str]] = {"model.twin_critic": "model.num_critics is the number of critics"}

    def _learn_values(self, rows: Rows, alpha: Tensor) -> Learned:
        learn, num_critics = self._cfg.learn, self._cfg.model.num_critics
        with torch.no_grad():
            target = self._target(rows, alpha)
        # An action for each critic, so that one pass back gives the gradient of each.
        action = rows.action.repeat(num_critics, 1, 1).requires_grad_()
        prediction = self._critic.network(rows.obs, action)
        each, error = self._compare(prediction, target)
        (slope,) = torch.autograd.grad(prediction.sum(), action, create_graph=True)
        loss = (rows.weight * each).mean(dim=1).sum() + learn.eta * likeness(slope)
        return Learned(self._critic.backward(loss), prediction.detach(), target, error.detach(), None)

    def _backup(self, rows: Rows, next_values: Tensor, cost: Tensor) -> Tensor:
        return super()._backup(rows, next_values, cost if self._cfg.learn.with_q_entropy else torch.zeros_like(cost))


def likeness(slope: Tensor) -> Tensor:
    """Return the mean over rows of `sum_{i != j} <g_i, g_j> / (N - 1)`, of gradients [N, B, A] scaled to length 1.

    Source: An et al. 2021, eq. 4.
    """
    unit = normalize(slope, dim=2)
    # |sum of g_i|^2 has each pair, and each g_i with itself.
    pairs = unit.sum(dim=0).square().sum(dim=1) - unit.square().sum(dim=(0, 2))
    return pairs.mean() / (len(slope) - 1)
