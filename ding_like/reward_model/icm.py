"""Intrinsic curiosity module (Pathak et al. 2017): a bonus for transitions that a model does not foresee.

    L_I    = -log p(a | phi(s), phi(s'))          of the inverse model, which shapes the features phi
    L_F    = |phi_hat(phi(s), a) - phi(s')|^2 / 2 of the forward model
    loss   = mean((1 - beta) L_I + beta L_F)      equation 7, without the policy's own loss
    reward = r + eta L_F                          equation 6; eta is `intrinsic_reward_weight`

The inverse model of continuous actions predicts these, with the loss |a_hat - a|^2 / 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ding_like.model.layers import build_mlp
from ding_like.reward_model.base import Sizes, Transitions
from ding_like.reward_model.intrinsic import IntrinsicRewardModel, InverseModel
from ding_like.types import Info
from ding_like.utils.bounds import SHARE, Bounds
from ding_like.utils.registries import REWARD_MODEL_REGISTRY


class CuriosityNetworks(nn.Module):
    """Features with an inverse model, and a forward model from features and action to the next features."""

    def __init__(self, sizes: Sizes, hidden_size_list: list[int]) -> None:
        super().__init__()
        self.inverse = InverseModel(sizes, hidden_size_list)
        size = self.inverse.output_size
        self.forward_main = build_mlp(size + sizes.action_size, hidden_size_list[:-1])
        self.forward_head = nn.Linear(hidden_size_list[-2], size)

    def error(self, features: Tensor, next_features: Tensor, action: Tensor) -> Tensor:
        """Return L_F [N]."""
        predicted = self.forward_head(self.forward_main(torch.cat([features, action], dim=1)))
        found: Tensor = 0.5 * (predicted - next_features).square().sum(dim=1)
        return found


@REWARD_MODEL_REGISTRY.register("icm")
class ICMRewardModel(IntrinsicRewardModel):
    """Bonus of transitions by the error of a forward model, in features that an inverse model shapes."""

    config: dict[str, Any] = dict(
        type="icm",
        # Share of the forward model's loss in the sum of both; the rest is the inverse model's.
        beta=0.2,
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {"beta": SHARE}
    monitored = ("reward_model_loss", "inverse_loss", "forward_loss")

    def build(self) -> nn.Module:
        """Return the networks of both models."""
        return CuriosityNetworks(self.sizes, list(self._cfg.hidden_size_list))

    def _features(self, transitions: Transitions) -> tuple[Tensor, Tensor]:
        features = self.module.inverse.features
        return features(transitions.obs), features(transitions.next_obs)

    def update(self, minibatch: Transitions) -> tuple[Tensor, Info]:
        """Return (the loss of both models, that of each)."""
        features = self._features(minibatch)
        inverse = self.module.inverse.loss(*features, minibatch.action)
        forward = self.module.error(*features, minibatch.action).mean()
        loss = (1 - self._cfg.beta) * inverse + self._cfg.beta * forward
        return loss, {"inverse_loss": inverse.detach(), "forward_loss": forward.detach()}

    def rewards(self, transitions: Transitions) -> Tensor:
        """Return L_F [N]."""
        bonus: Tensor = self.module.error(*self._features(transitions), transitions.action)
        return bonus
