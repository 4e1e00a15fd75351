"""Generative adversarial imitation learning (Ho & Ermon 2016).

A discriminator D(s, a), the sigmoid of a network's output x, tells the expert's transitions (1) from the policy's (0),

    loss   = -mean_expert(log D) - mean_policy(log(1 - D))          equation 14, with the labels swapped
    reward = -log(1 - D(s, a)) = log(1 + exp(x))                     what the policy maximises

and the policy learns from the reward in place of the env's. With `gradient_penalty` the loss has in addition
weight * mean((|d x / d (s, a)| - 1)^2) at points between the two (Gulrajani et al. 2017).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from ding_like.reward_model.base import PairNetwork, RewardModel, Transitions
from ding_like.types import Info
from ding_like.utils.bounds import FROM_0, Bounds
from ding_like.utils.registries import REWARD_MODEL_REGISTRY


def tell_apart(of_expert: Tensor, of_policy: Tensor) -> tuple[Tensor, Info]:
    """Return (a discriminator's loss, the shares that it tells right) of its logits [N] for both kinds of row."""
    loss = functional.softplus(-of_expert).mean() + functional.softplus(of_policy).mean()
    right = (of_expert > 0).float().mean(), (of_policy < 0).float().mean()
    return loss, {"expert_accuracy": right[0], "policy_accuracy": right[1]}


@REWARD_MODEL_REGISTRY.register("gail")
class GAILRewardModel(RewardModel):
    """Discriminator of an expert's transitions and the policy's, whose doubt is the policy's cost."""

    config: dict[str, Any] = dict(
        type="gail",
        # File of the expert's demonstrations, which `ding collect` writes.
        data_path="",
        # Widths of the discriminator's hidden layers.
        hidden_size_list=[64, 64],
        # Weight of the gradient penalty.
        gradient_penalty=0.0,
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {"gradient_penalty": FROM_0}
    needs_expert = True
    monitored = ("reward_model_loss", "expert_accuracy", "policy_accuracy")

    def build(self) -> nn.Module:
        """Return the discriminator's network."""
        sizes = self.sizes
        return PairNetwork(
            sizes.obs_shape, self._cfg.hidden_size_list, action_size=sizes.action_size, activation="tanh"
        )

    def logits(self, transitions: Transitions) -> Tensor:
        """Return x [N], above 0 where the expert is the likelier."""
        out: Tensor = self.module(transitions.obs, transitions.action)[:, 0]
        return out

    def update(self, minibatch: Transitions) -> tuple[Tensor, Info]:
        """Return (the discriminator's loss, the shares of transitions that it tells right)."""
        expert = self.draw(self.expert, len(minibatch))
        loss, info = tell_apart(self.logits(expert), self.logits(minibatch))
        if self._cfg.gradient_penalty:
            loss = loss + self._cfg.gradient_penalty * self._penalty(expert, minibatch)
        return loss, info

    def _penalty(self, expert: Transitions, policy: Transitions) -> Tensor:
        share = torch.as_tensor(self._rng.random((len(expert), 1)), dtype=torch.float32, device=self.device)
        features = [
            torch.cat([self.module.features(each.obs).flatten(1), each.action], dim=1) for each in (expert, policy)
        ]
        between = (share * features[0] + (1 - share) * features[1]).detach().requires_grad_()
        out = self.module.head(self.module.main(between))
        (slope,) = torch.autograd.grad(out.sum(), between, create_graph=True)
        return (slope.norm(dim=1) - 1).square().mean()

    def rewards(self, transitions: Transitions) -> Tensor:
        """Return -log(1 - D) [N]."""
        return functional.softplus(self.logits(transitions))
