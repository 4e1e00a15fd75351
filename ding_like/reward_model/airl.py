"""Adversarial inverse reinforcement learning (Fu et al. 2018, "Learning robust rewards with adversarial IRL").

A discriminator tells the expert's transitions (1) from the policy's (0). What is learned in it is a reward g and a
potential h, which takes up what shaping a reward leaves open:

    f(s, a, s') = g(s, a) + gamma * h(s') - h(s)                       gamma * h(s') only if not terminated
    D(s, a, s') = exp(f) / (exp(f) + pi(a|s)), the sigmoid of x = f - log pi(a|s)
    loss        = -mean_expert(log D) - mean_policy(log(1 - D))
    reward      = log D - log(1 - D) = f - log pi(a|s)                 section 4: an entropy bonus is part of it

pi is the policy as it is when the discriminator learns, of an on-policy batch the one that acted. The rows of a replay
buffer are of older ones, whose actions the present one may hardly take: with `policy_term=False` x and the reward are f
alone (D then compares the expert with what is in the buffer, as in Kostrikov et al. 2019), and any policy will do.
With `state_only` g depends on s alone, which is what lets a reward be used in another env (section 6).

The paper's reward is below 0 wherever the discriminator takes a transition for the policy's, and then an early end is
best. The paper's tasks have no ends; for those whose episodes end by failure, `positive_reward` gives the reward of
GAIL by the same discriminator, -log(1 - D) = log(1 + exp(x)).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional

from ding_like.reward_model.base import PairNetwork, RewardModel, Transitions
from ding_like.reward_model.gail import tell_apart
from ding_like.types import Info
from ding_like.utils.bounds import SHARE, Bounds
from ding_like.utils.registries import REWARD_MODEL_REGISTRY


@REWARD_MODEL_REGISTRY.register("airl")
class AIRLRewardModel(RewardModel):
    """Discriminator whose logit is a reward, shaped by a potential, less the policy's log probability."""

    config: dict[str, Any] = dict(
        type="airl",
        # File of the expert's demonstrations, which `ding collect` writes.
        data_path="",
        # Widths of the hidden layers, of the reward's network and of the potential's.
        hidden_size_list=[64, 64],
        # Discount of the potential: that of the policy.
        discount_factor=0.99,
        # The reward depends on the observation alone.
        state_only=False,
        # The discriminator has the policy's probabilities, as in the paper; False: for policies that are off-policy.
        policy_term=True,
        # The reward is -log(1 - D), never below 0, in place of log D - log(1 - D).
        positive_reward=False,
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {"discount_factor": SHARE}
    needs_expert = True
    monitored = ("reward_model_loss", "expert_accuracy", "policy_accuracy")

    def build(self) -> nn.Module:
        """Return the networks `reward` and `potential`."""
        sizes, cfg = self.sizes, self._cfg
        return nn.ModuleDict(
            {
                "reward": PairNetwork(
                    sizes.obs_shape,
                    cfg.hidden_size_list,
                    action_size=0 if cfg.state_only else sizes.action_size,
                    activation="tanh",
                ),
                "potential": PairNetwork(sizes.obs_shape, cfg.hidden_size_list, activation="tanh"),
            }
        )

    def needs_log_prob(self) -> bool:
        """Return whether the discriminator has the policy's probabilities."""
        return bool(self._cfg.policy_term)

    def shaped(self, transitions: Transitions) -> Tensor:
        """Return f [N]."""
        reward, potential = self.module["reward"], self.module["potential"]
        now = reward(transitions.obs, None if self._cfg.state_only else transitions.action)[:, 0]
        after = potential(transitions.next_obs)[:, 0].masked_fill(transitions.terminated, 0.0)
        out: Tensor = now + self._cfg.discount_factor * after - potential(transitions.obs)[:, 0]
        return out

    def logits(self, transitions: Transitions) -> Tensor:
        """Return x [N], above 0 where the expert is the likelier."""
        shaped = self.shaped(transitions)
        return shaped - self.log_prob(transitions) if self._cfg.policy_term else shaped

    def update(self, minibatch: Transitions) -> tuple[Tensor, Info]:
        """Return (the discriminator's loss, the shares of transitions that it tells right)."""
        return tell_apart(self.logits(self.draw(self.expert, len(minibatch))), self.logits(minibatch))

    def rewards(self, transitions: Transitions) -> Tensor:
        """Return x [N], or with `positive_reward` log(1 + exp(x))."""
        logits = self.logits(transitions)
        return functional.softplus(logits) if self._cfg.positive_reward else logits
