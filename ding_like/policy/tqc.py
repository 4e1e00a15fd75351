"""Truncated quantile critics (Kuznetsov et al. 2020).

SAC with N critics that give M quantiles of the soft return each; the largest of their targets, which are what
overestimates, are left out. A row is that of `policy/sac.py`; a' ~ pi(next_obs) and a ~ pi(obs) are drawn afresh; Z'
are the target networks. The losses are

    z_1 <= z_2 <= ...  = all N * M quantiles Z'_nm(next_obs, a'), in order
    y_i         = R + discount * (z_i - alpha * log pi(a'))     for i up to N * (M - d); R alone if terminated
    critic_loss = sum_n mean(weight * mean_m mean_i rho_m(y_i - Z_nm(obs, action)))
    actor_loss  = mean(alpha * log pi(a) - mean_nm Z_nm(obs, a))

where d is `learn.num_dropped`, and rho_m is the quantile Huber loss at tau_m = (m - 1/2) / M, that of QR-DQN
(`rl_utils/value_family.py`). The temperature is learned as in SAC.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.offpolicy import Rows
from ding_like.policy.sac import SACPolicy
from ding_like.rl_utils.td import nstep_td_target
from ding_like.rl_utils.value_family import asymmetric_huber, quantile_huber
from ding_like.types import Config
from ding_like.utils.bounds import FROM_0, FROM_1, Bounds
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("tqc")
class TQCPolicy(SACPolicy):
    """Stochastic actor of continuous actions, critics of quantiles and a temperature, learned off-policy."""

    model_methods: tuple[ModelMethod, ...] = (
        ModelMethod("actor", gives=("B 2A",)),
        ModelMethod("critic", "obs, action", ("N B M",)),
    )
    config: dict[str, Any] = dict(
        type="tqc",
        model=dict(
            # Critics; the paper has 5, which cost more of an update than they gain on a CPU.
            num_critics=2,
            # Quantiles of the return that each critic gives.
            num_quantiles=25,
        ),
        learn=dict(
            # Largest target quantiles that are left out, for each critic: against overestimation.
            num_dropped=2,
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "model.num_critics": FROM_1,
        "model.num_quantiles": FROM_1,
        "learn.num_dropped": FROM_0,
    }
    config_unused: ClassVar[Mapping[str, str]] = {"model.twin_critic": "model.num_critics is the number of critics"}

    @classmethod
    def check_config(cls, cfg: Config) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for every contradiction in the policy section."""
        yield from super().check_config(cfg)
        dropped, quantiles = cfg["learn"]["num_dropped"], cfg["model"].get("num_quantiles")
        if quantiles is not None and dropped >= quantiles:
            yield "learn.num_dropped", f"is {dropped} of {quantiles} quantiles (model.num_quantiles): leave 1 or more"

    def _backup(self, rows: Rows, next_values: Tensor, cost: Tensor) -> Tensor:
        """Return the target quantiles [B, K] in ascending order, K of them, given those that follow [N, B, M]."""
        num_critics, batch, num_quantiles = next_values.shape
        kept = num_critics * (num_quantiles - self._cfg.learn.num_dropped)
        ordered = next_values.transpose(0, 1).reshape(batch, -1).sort(dim=1).values[:, :kept]
        discount = rows.discount.unsqueeze(1) if isinstance(rows.discount, Tensor) else rows.discount
        return nstep_td_target(
            rows.reward.unsqueeze(1),
            ordered - cost.unsqueeze(1),
            discount=discount,
            terminated=rows.terminated.unsqueeze(1),
        )

    def _compare(self, prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return (the quantile Huber loss [N, B] of quantiles [N, B, M], the differences of the means [N, B])."""
        num_quantiles = prediction.shape[2]
        tau = (torch.arange(num_quantiles, dtype=prediction.dtype, device=prediction.device) + 0.5) / num_quantiles
        difference = target[:, None] - prediction.unsqueeze(3)  # [N, B, M, K]
        each = asymmetric_huber(difference, tau[:, None], kappa=1.0).mean(dim=(2, 3))
        return each, self._error(prediction.detach(), target)

    def _compare_by_hand(self, prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        num_quantiles = prediction.shape[2]
        tau = (np.arange(num_quantiles) + 0.5) / num_quantiles
        found = [quantile_huber(one, target.numpy(), tau=tau, kappa=1.0) for one in prediction.numpy()]
        # That is a sum over the quantiles, and the loss is a mean.
        each, slope = (torch.from_numpy(np.stack(part) / num_quantiles).float() for part in zip(*found, strict=True))
        return each, self._error(prediction, target), slope

    def _error(self, prediction: Tensor, target: Tensor) -> Tensor:
        return self._means(prediction) - self._means(target)

    def _means(self, prediction: Tensor) -> Tensor:
        return prediction.mean(dim=-1)

    def _value(self, prediction: Tensor) -> tuple[Tensor, Tensor]:
        """Return (the mean [B] of all quantiles [N, B, M], which the actor maximises; its slope by them [N, B, M])."""
        num_critics, _, num_quantiles = prediction.shape
        return prediction.mean(dim=(0, 2)), torch.full_like(prediction, 1.0 / (num_critics * num_quantiles))
