"""Random network distillation (Burda et al. 2019): a bonus for observations that a network cannot predict yet.

    e(s')  = mean((f_hat(s') - f(s'))^2)          f is random and fixed, f_hat learns to predict it: loss = mean(e)
    reward = r + weight * e(s') / sigma           sigma is the deviation of all e so far

Observations go into both networks less their running mean, by their running deviation, within limits.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ding_like.reward_model.base import Transitions
from ding_like.reward_model.intrinsic import DistillationRewardModel, RandomDistance
from ding_like.types import Info
from ding_like.utils.registries import REWARD_MODEL_REGISTRY


@REWARD_MODEL_REGISTRY.register("rnd")
class RNDRewardModel(DistillationRewardModel):
    """Bonus of next observations by how badly a network predicts a random one's features."""

    config: dict[str, Any] = dict(type="rnd")

    def build(self) -> nn.Module:
        """Return both networks with the moments."""
        return self.build_distillation()

    @property
    def distillation(self) -> RandomDistance:
        """Networks of random network distillation."""
        found: RandomDistance = self.module
        return found

    def update(self, minibatch: Transitions) -> tuple[Tensor, Info]:
        """Return (the predictor's loss, nothing more)."""
        return self.distillation(minibatch.next_obs).mean(), {}

    def rewards(self, transitions: Transitions) -> Tensor:
        """Return e(s') by its deviation [N]."""
        bonus: Tensor = self.distillation(transitions.next_obs) / self.distillation.moments.std
        return bonus
