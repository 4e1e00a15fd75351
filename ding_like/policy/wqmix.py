"""Weighted QMIX (Rashid et al. 2020, "Weighted QMIX: Expanding Monotonic Value Function Factorisation").

QMIX fits what it can represent to all joint actions alike, and so may rate the best one low where it has bad
neighbours. Here joint actions that look worse than they are count less. Beside Q_tot, QMIX's, is Q*, an unrestricted
network with agents of its own, from which both learn (section 4, equations 5 to 8):

    u*'  = (argmax_u Q_a(o_a', u))_a                              what is greedy by Q_tot; u legal
    y    = r + discount * Q*'(s', u*')                            second part only if not terminated
    loss = mean(w(s, u) (Q_tot(s, u) - y)^2 + (Q*(s, u) - y)^2)

    optimistically   w = 1 where Q_tot(s, u) < y, else alpha
    centrally        w = 1 where y > Q*(s, u*) or u = u*, else alpha

Agents that have left count 0 in both, and what they do is not compared with u*.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from ding_like.data.batch import TransitionBatch, split_mask
from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.qmix import QMIXPolicy
from ding_like.policy.vdn import present
from ding_like.rl_utils.td import best_action, legal_value
from ding_like.rl_utils.value_family import RowLoss
from ding_like.utils.bounds import SHARE, Bounds
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("wqmix")
class WQMIXPolicy(QMIXPolicy):
    """QMIX in which joint actions that look worse than they are count less."""

    model_methods: tuple[ModelMethod, ...] = (
        *QMIXPolicy.model_methods,
        ModelMethod("central_q", gives=("B N A",)),
        ModelMethod("central_mix", "values, obs", ("B",)),
    )
    config: dict[str, Any] = dict(
        type="wqmix",
        learn=dict(
            # Which joint actions count in full: "optimistically" or "centrally" weighted QMIX.
            weighting="optimistically",
            # Weight of the others.
            alpha=0.1,
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {"learn.alpha": SHARE}
    config_choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"learn.weighting": ("optimistically", "centrally")}

    model_name = "wqmix"

    # Any: tensors, in a dict; a network of a team.
    def _next_value(self, next_obs: Any, mask: Any) -> Tensor:
        """Return Q*' [B] of the legal actions that are greedy by Q_tot."""
        central = self._target_model.central_q(next_obs)
        return self._central(self._target_model, legal_value(self._judge(next_obs), central, mask), next_obs)

    def _row_loss(self, rows: TransitionBatch, target: Tensor) -> tuple[RowLoss, Tensor]:
        """Return (the losses of Q_tot and Q* of each row, Q_tot)."""
        obs, mask = split_mask(self._obs(rows))
        model, family, action = self._model, self._family, rows["action"]
        values, central_values = model.q(obs), model.central_q(obs)
        total = self._total(model, family.of_action(values, action), obs)
        central = self._central(model, family.of_action(central_values, action), obs)
        with torch.no_grad():
            if self._cfg.learn.weighting == "optimistically":
                counts = total < target
            else:
                greedy, _ = best_action(values, mask)
                of_greedy = self._central(model, family.of_action(central_values, greedy), obs)
                counts = (target > of_greedy) | ((action == greedy) | ~present(obs)).all(dim=1)
            weight = torch.where(counts, 1.0, float(self._cfg.learn.alpha))
        each = family.loss(total, target)
        return each._replace(loss=weight * each.loss + family.loss(central, target).loss), total

    def _central(self, model: Any, values: Tensor, obs: Mapping[str, Tensor]) -> Tensor:
        """Return Q* [B] of one central value per agent [B, N]: 0 of those that have left."""
        return cast(Tensor, model.central_mix(values.masked_fill(~present(obs), 0.0), obs))
