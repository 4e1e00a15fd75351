"""PDEIL (after Liu et al. 2021, "Probability density estimation based imitation learning").

Three densities stand in place of a discriminator, all from normal distributions: p_E(s) and p_E(a|s) of the expert,
fitted once, and p_pi(s) of the policy, of its last `window` transitions or so.

    reward = p_E(a|s) * p_E(s) / (alpha * p_E(s) + (1 - alpha) * p_pi(s))

It is high for what the expert does, where the expert is as often as the policy; where the expert has not been it is
near 0, and at most p_E(a|s) / alpha. Discrete actions: p_E(a|s) = p_E(s|a) p_E(a) / p_E(s), a normal distribution for
each action (of several at once, for each by itself). Continuous ones: p_E(s, a) / p_E(s), both normal.

Observations are vectors, shifted and scaled by the expert's mean and deviation, as continuous actions are; the variance
of each gets 0.001 more, so that it is never 0. All is in logarithms and double precision.

PWIL (Dadashi et al. 2021) needs more than a learner has: it pairs the steps of an episode with the expert's, one after
another from the first on, and a batch of a replay buffer holds single steps in no order, each with the reward that it
had when it was made. Densities need neither order nor episodes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ding_like.errors import ConfigError
from ding_like.model.encoder import FlatPart, lay_out
from ding_like.reward_model.base import Moments, RewardModel, Transitions
from ding_like.types import Info
from ding_like.utils.bounds import FROM_1, SHARE_ABOVE_0, Bounds
from ding_like.utils.registries import REWARD_MODEL_REGISTRY

_MORE_VARIANCE = 1e-3
_NO_NETWORK = "there is no network to train"


class Normals(nn.Module):
    """K normal distributions over vectors [size], by sums over rows that count more for one than for another."""

    def __init__(self, num: int, size: int) -> None:
        super().__init__()
        self.weight: Tensor
        self.total: Tensor
        self.outer: Tensor
        self.register_buffer("weight", torch.zeros(num, dtype=torch.float64))
        self.register_buffer("total", torch.zeros(num, size, dtype=torch.float64))
        self.register_buffer("outer", torch.zeros(num, size, size, dtype=torch.float64))

    def sums_of(self, values: Tensor, weight: Tensor) -> list[Tensor]:
        """Return what vectors [N, size] that count `weight` [N, K] add to weight, total and outer."""
        weighted = weight.t()[:, :, None] * values  # [K, N, size]
        return [weight.sum(dim=0), weighted.sum(dim=1), weighted.transpose(1, 2) @ values]

    def add(self, sums: list[Tensor], keep: Tensor | float = 1.0) -> None:
        """Add sums; what there is already counts `keep` times."""
        for own, new in zip((self.weight, self.total, self.outer), sums, strict=True):
            own.mul_(keep).add_(new)

    def log_prob(self, values: Tensor) -> Tensor:
        """Return the log densities [N, K] of vectors [N, size]; one without rows is of mean 0 and deviation 1."""
        size = self.total.shape[1]
        one = torch.eye(size, dtype=torch.float64, device=values.device)
        count = self.weight.clamp(min=1e-12)[:, None]
        mean = self.total / count
        covariance = self.outer / count[..., None] - mean[:, :, None] * mean[:, None, :]
        covariance = torch.where(self.weight[:, None, None] > 0, covariance + _MORE_VARIANCE * one, one)
        root = torch.linalg.cholesky(covariance)
        apart = (values - mean[:, None, :]).transpose(1, 2)  # [K, size, N]
        distance = torch.linalg.solve_triangular(root, apart, upper=False).square().sum(dim=1)
        log_root = root.diagonal(dim1=1, dim2=2).log().sum(dim=1)
        out: Tensor = (-0.5 * (distance + size * math.log(2 * math.pi)) - log_root[:, None]).t()
        return out


@REWARD_MODEL_REGISTRY.register("pdeil")
class PDEILRewardModel(RewardModel):
    """Normal distributions of the expert's observations and actions and of the policy's observations."""

    config: dict[str, Any] = dict(
        type="pdeil",
        # File of the expert's demonstrations, which `ding collect` writes.
        data_path="",
        # Share of the expert's density in what its density is divided by; the policy's is the rest.
        alpha=0.5,
        # Transitions of the policy, the last ones, that its density stands for.
        window=5000,
        update_per_collect=0,
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {"alpha": SHARE_ABOVE_0, "window": FROM_1}
    config_unused: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("update_per_collect", "batch_size", "learning_rate", "grad_clip_norm"), _NO_NETWORK
    )
    needs_expert = True
    monitored = ()

    def build(self) -> nn.Module:
        """Return the scales and the normal distributions, all of them buffers."""
        sizes, features = self.sizes, lay_out(self.sizes.obs_shape, activation="relu")
        if not isinstance(features, FlatPart):
            raise ConfigError(
                f"reward model 'pdeil' takes observations that are vectors, and obs_shape is {sizes.obs_shape}: choose "
                "reward_model.type='gail' or 'red'."
            )
        size, num = int(features.output_size), sizes.action_size
        return nn.ModuleDict(
            {
                "obs_scale": Moments(size),
                "action_scale": Moments(num),
                "expert_obs": Normals(1, size),
                # Of observations for each action, or of observations with actions.
                "expert_pair": Normals(num, size) if sizes.is_discrete else Normals(1, size + num),
                "policy_obs": Normals(1, size),
            }
        )

    def pretrain(self) -> Info:
        """Fit the expert's distributions."""
        obs, action = self.expert.obs.flatten(1), self.expert.action
        self.module["obs_scale"].update(obs)
        self.module["action_scale"].update(action)
        vector = self._vectors(self.expert)
        every = torch.ones(len(vector), 1, dtype=torch.float64, device=vector.device)
        pairs = (vector, action.double()) if self.sizes.is_discrete else (self._pairs(self.expert), every)
        for name, rows in (("expert_obs", (vector, every)), ("expert_pair", pairs)):
            self.module[name].add(self.module[name].sums_of(*rows))
        return {}

    def train(self) -> Info:
        """Take the transitions collected last into the policy's distribution, after the expert's is fitted."""
        super().train()
        assert self._collected is not None, "`collect` comes before"
        normal, vector = self.module["policy_obs"], self._vectors(self._collected)
        sums = normal.sums_of(vector, torch.ones(len(vector), 1, dtype=torch.float64, device=vector.device))
        sizes = [each.numel() for each in sums]
        means = self.mean_of_learners(torch.cat([each.flatten() for each in sums])).split(sizes)
        sums = [new.reshape(each.shape) for new, each in zip(means, sums, strict=True)]
        keep = ((self._cfg.window - sums[0]) / normal.weight).clamp(0.0, 1.0).nan_to_num(0.0)
        normal.add(sums, keep)
        return {}

    def _vectors(self, transitions: Transitions) -> Tensor:
        return self._scaled("obs_scale", transitions.obs.flatten(1))

    def _pairs(self, transitions: Transitions) -> Tensor:
        return torch.cat([self._vectors(transitions), self._scaled("action_scale", transitions.action)], dim=1)

    def _scaled(self, name: str, values: Tensor) -> Tensor:
        scale = self.module[name]
        out: Tensor = (values.double() - scale.mean) / scale.std
        return out

    def log_action(self, transitions: Transitions) -> Tensor:
        """Return log p_E(a|s) [N]."""
        pair, obs = self.module["expert_pair"], self._vectors(transitions)
        if not self.sizes.is_discrete:
            out: Tensor = (pair.log_prob(self._pairs(transitions)) - self.module["expert_obs"].log_prob(obs))[:, 0]
            return out
        log_joint = pair.log_prob(obs) + pair.weight.log()
        each = [part.log_softmax(dim=1) for part in log_joint.split(self.sizes.choices, dim=1)]
        return torch.cat(each, dim=1).masked_fill(transitions.action == 0, 0.0).sum(dim=1)

    def rewards(self, transitions: Transitions) -> Tensor:
        """Return p_E(a|s) p_E(s) / (alpha p_E(s) + (1 - alpha) p_pi(s)) [N]."""
        obs, alpha = self._vectors(transitions), torch.tensor(self._cfg.alpha, dtype=torch.float64)
        expert, policy = (self.module[name].log_prob(obs)[:, 0] for name in ("expert_obs", "policy_obs"))
        mixed = torch.logaddexp(alpha.log() + expert, (1 - alpha).log() + policy)
        return (self.log_action(transitions) + expert - mixed).exp().float()
