"""Guided cost learning (Finn et al. 2016, "Guided cost learning: deep inverse optimal control via policy
optimization").

A network c(s, a) is the cost by which the expert's behaviour is most likely, where behaviour of cost c has a
probability in proportion to exp(-c) (maximum entropy). The sum of exp(-c) over all behaviour is estimated from what the
policy did, each weighted by the inverse of its probability, and from the expert's own, as the paper adds it:

    w_j    = exp(-c_j) / q_j,   q_j = pi(a_j | s_j)          of the policy's and of the expert's, M = 2 N together
    loss   = mean_expert(c) + log(mean_j w_j)                equation 4, each step by itself
             + (mean_expert(c) + 1)^2
    reward = -c(s, a)

The paper's samples are trajectories; a learner has single steps, of which a replay buffer's are in no order. The first
two terms are the same for c and c plus any number, which in tasks whose episodes end early matters: the last term
settles it, so that a step of the expert is worth 1 on average. log q_j is at least -10: one action of the expert that
the policy would hardly take would else be all that the mean is made of.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ding_like.reward_model.base import PairNetwork, RewardModel, Transitions
from ding_like.types import Info
from ding_like.utils.registries import REWARD_MODEL_REGISTRY

_MIN_LOG_PROB = -10.0


@REWARD_MODEL_REGISTRY.register("guided_cost")
class GuidedCostRewardModel(RewardModel):
    """Network of the cost that the expert is assumed to keep low."""

    config: dict[str, Any] = dict(
        type="guided_cost",
        # File of the expert's demonstrations, which `ding collect` writes.
        data_path="",
        # Widths of the cost network's hidden layers.
        hidden_size_list=[64, 64],
    )
    needs_expert = True
    monitored = ("reward_model_loss", "expert_cost", "policy_cost")

    def build(self) -> nn.Module:
        """Return the cost's network."""
        sizes = self.sizes
        return PairNetwork(
            sizes.obs_shape, self._cfg.hidden_size_list, action_size=sizes.action_size, activation="tanh"
        )

    def needs_log_prob(self) -> bool:
        """Return True: weights are of the policy's probabilities."""
        return True

    def cost(self, transitions: Transitions) -> Tensor:
        """Return c [N]."""
        out: Tensor = self.module(transitions.obs, transitions.action)[:, 0]
        return out

    def update(self, minibatch: Transitions) -> tuple[Tensor, Info]:
        """Return (the loss, the mean costs of the expert and of the policy)."""
        expert = self.draw(self.expert, len(minibatch))
        costs = self.cost(expert), self.cost(minibatch)
        log_prob = torch.cat([self.log_prob(expert), self.log_prob(minibatch)]).clamp(min=_MIN_LOG_PROB)
        log_weight = -torch.cat(costs) - log_prob
        of_expert = costs[0].mean()
        loss = of_expert + log_weight.logsumexp(dim=0) - math.log(len(log_weight)) + (of_expert + 1.0).square()
        return loss, {"expert_cost": of_expert.detach(), "policy_cost": costs[1].mean().detach()}

    def rewards(self, transitions: Transitions) -> Tensor:
        """Return -c [N]."""
        return -self.cost(transitions)
