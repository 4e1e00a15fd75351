"""DQfD: deep Q-learning from demonstrations (Hester et al. 2018).

A batch has rows of an expert among those of the agent (`policy/from_experts.py`). A row holds one step (obs, action, r,
next_obs', terminated') and n steps (R, discount, next_obs, terminated). With y1 and yn DQN's targets of each, of double
Q-learning (`policy/dqn.py`), the loss is that of equation 5:

    each = L(Q(obs, action) - y1) + lambda1 * L(Q(obs, action) - yn) + lambda2 * [is expert's] * J
    J    = max_a (Q(obs, a) + expert_margin * [a != action]) - Q(obs, action)       equation 4
    loss = mean(weight * each)

L is the square, or Huber's loss. J makes the expert's action better than each other one by a margin: without it the
values of actions that are in no row would be whatever the network makes of them. Of equation 5, lambda3 times the
squared weights is `learn.optimizer.weight_decay`. Training begins with `learn.pretrain_updates` on the expert alone.

Priorities are the absolute one-step errors of the agent's rows; the expert's rows are drawn uniformly, and make up a
fixed share, where the paper keeps both in one buffer and adds a bonus to the expert's priorities.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ding_like.data.batch import TransitionBatch, split_mask
from ding_like.policy.dqn import DQNPolicy
from ding_like.policy.from_experts import FromExperts, expert_mask
from ding_like.policy.rows import ONE_STEP, OneAndNStepRows
from ding_like.rl_utils.td import large_margin
from ding_like.rl_utils.value_family import weighted_mean
from ding_like.types import Array
from ding_like.utils.bounds import FROM_0, Bounds
from ding_like.utils.registries import POLICY_REGISTRY


class LargeMargin(FromExperts):
    """Policy of action values that may be made to prefer the expert's actions by a margin."""

    config: dict[str, Any] = dict(
        learn=dict(
            # Weight of the loss that makes the expert's actions better than others by a margin.
            lambda2=1.0,
            # Margin by which the expert's actions are to be better.
            expert_margin=0.8,
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {"learn.lambda2": FROM_0, "learn.expert_margin": FROM_0}

    # Any: a mask of legal actions, or None.
    def _margin_loss(self, rows: TransitionBatch, values: Tensor, legal: Any) -> Tensor | float:
        """Return the weighted margin losses [B, ...] of the values [B, ..., A], 0 of the agent's own rows."""
        mask, learn = expert_mask(rows), self._cfg.learn
        if mask is None or not learn.lambda2:
            return 0.0
        each = large_margin(values, rows["action"], margin=learn.expert_margin, mask=legal)
        weight: float = learn.lambda2
        return weight * each * mask.reshape(-1, *[1] * (each.dim() - 1))


@POLICY_REGISTRY.register("dqfd")
class DQFDPolicy(LargeMargin, DQNPolicy):
    """Deep Q-learning from an expert's rows beside its own, of one-step and n-step returns and a margin."""

    config: dict[str, Any] = dict(
        type="dqfd",
        # Steps of the longer of the two returns of a row.
        nstep=10,
        learn=dict(
            # Weight of the loss of n-step returns.
            lambda1=1.0,
            expert_share=0.25,
            pretrain_updates=1000,
            backend="autograd",
            # The L2 loss of the paper, whose weight is its lambda3.
            optimizer=dict(weight_decay=1e-5),
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {"learn.lambda1": FROM_0}
    config_unused: ClassVar[Mapping[str, str]] = {"learn.backend": "no gradient by hand is known for this loss"}

    def row_maker(self) -> OneAndNStepRows:
        return OneAndNStepRows(self._nstep, self._gamma)

    def why_no_reward_model(self) -> str:
        """Return why rows cannot be given other rewards."""
        return "its rows hold the rewards of one step and of several"

    def _is_plain(self) -> bool:
        return False

    def _fill(self, rows: TransitionBatch) -> tuple[Tensor, Tensor, Tensor, Array | None]:
        self._params.follow()
        with torch.no_grad():
            target, one_step_target = self._td_target(rows), self._td_target(_one_step(rows))
        obs, legal = split_mask(self._obs(rows))
        values = self._family.expected(self._predict(obs))
        chosen = self._family.of_action(values, rows["action"])
        one_step = self._family.loss(chosen, one_step_target)
        each = one_step.loss + self._cfg.learn.lambda1 * self._family.loss(chosen, target).loss
        each = each + self._margin_loss(rows, values, legal)
        loss = self._params.backward(weighted_mean(each, self._weight(rows)))
        priority = np.asarray(one_step.priority.cpu()) if self._cfg.priority else None
        return loss, values.detach(), target, priority


def _one_step(rows: TransitionBatch) -> TransitionBatch:
    """Return the columns of rows' first steps, from which their targets follow."""
    start = len(ONE_STEP)
    return TransitionBatch({name[start:]: each for name, each in rows.columns.items() if name.startswith(ONE_STEP)})
