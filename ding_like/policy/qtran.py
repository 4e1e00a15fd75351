"""QTRAN-base (Son et al. 2019, "QTRAN: Learning to Factorize with Transformation for Cooperative Multi-Agent RL").

A joint value Q_jt of any form is learned, and agents' values Q_a whose sum has its best joint action. The state s
stands beside the agents' observations, which are all that the paper's networks see; sums are over agents with
alive_a = 1, and u* = (argmax_u Q_a(o_a, u))_a, u legal (section 4.1, equations 4 to 7):

    y      = r + discount * Q_jt'(s', u*')                        second part only if not terminated
    L_td   = (Q_jt(s, u) - y)^2                                   or Huber's loss with learn.loss="huber"
    L_opt  = (sum_a Q_a(o_a, u*_a) - Q_jt(s, u*) + V_jt(s))^2
    L_nopt = min(sum_a Q_a(o_a, u_a) - Q_jt(s, u) + V_jt(s), 0)^2
    loss   = mean(L_td + opt_weight * L_opt + nopt_weight * L_nopt)

In L_opt and L_nopt, Q_jt is a constant. With V_jt, what the joint value is beyond the sum, L_opt makes them equal where
agents are greedy, and L_nopt keeps the sum from being less anywhere else: the greedy actions are then the best.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from ding_like.data.batch import TransitionBatch, split_mask
from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.vdn import VDNPolicy, present
from ding_like.rl_utils.td import best_action
from ding_like.rl_utils.value_family import RowLoss
from ding_like.utils.bounds import FROM_0, Bounds
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("qtran")
class QTRANPolicy(VDNPolicy):
    """Q-learning of a team by a joint value of any form, and agents' values that agree with it on what is best."""

    model_methods: tuple[ModelMethod, ...] = (
        ModelMethod("q", gives=("B N A",)),
        ModelMethod("joint", "obs, joint action, present", ("B",)),
        ModelMethod("state_value", "obs, present", ("B",)),
    )
    config: dict[str, Any] = dict(
        type="qtran",
        learn=dict(
            # Weight of the loss of greedy joint actions, L_opt.
            opt_weight=1.0,
            # Weight of the loss of the joint actions that were taken, L_nopt.
            nopt_weight=1.0,
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {"learn.opt_weight": FROM_0, "learn.nopt_weight": FROM_0}

    model_name = "qtran"

    # Any: tensors, in a dict.
    def _next_value(self, next_obs: Any, mask: Any) -> Tensor:
        """Return Q_jt' [B] of the legal actions that are greedy by the agents' values."""
        best, nothing_legal = best_action(self._judge(next_obs), mask)
        here = present(next_obs) if nothing_legal is None else present(next_obs) & ~nothing_legal
        return cast(Tensor, self._target_model.joint(next_obs, best, here))

    def _row_loss(self, rows: TransitionBatch, target: Tensor) -> tuple[RowLoss, Tensor]:
        """Return (the sum of the three losses of each row, Q_jt)."""
        obs, mask = split_mask(self._obs(rows))
        model, family, learn, action = self._model, self._family, self._cfg.learn, rows["action"]
        here, values = present(obs), model.q(obs)
        joint = model.joint(obs, action, here)
        greedy, _ = best_action(values.detach(), mask)
        with torch.no_grad():
            joint_of_greedy = model.joint(obs, greedy, here)
        beyond = model.state_value(obs, here)
        sum_of_greedy, sum_of_taken = (
            family.of_action(values, each).masked_fill(~here, 0.0).sum(dim=1) for each in (greedy, action)
        )
        opt = (sum_of_greedy - joint_of_greedy + beyond).square()
        nopt = (sum_of_taken - joint.detach() + beyond).clamp(max=0.0).square()
        each = family.loss(joint, target)
        return each._replace(loss=each.loss + learn.opt_weight * opt + learn.nopt_weight * nopt), joint
