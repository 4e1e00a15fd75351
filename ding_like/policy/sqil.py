"""SQIL: imitation by soft Q-learning with rewards 1 for the expert and 0 for the agent (Reddy et al. 2020).

Half of each batch are rows of an expert, whose every step is rewarded with 1, the other half are the agent's, whose
steps are rewarded with 0: the agent is drawn back to states that the expert knows, without rewards of the env and
without a discriminator. The updates are those of soft Q-learning (`policy/sql.py`), with Q' the target network:

    y    = r + discount * alpha * log sum_a exp(Q'(next_obs, a) / alpha)     second part only if not terminated
    loss = mean(weight * (Q(obs, action) - y)^2),    r = 1 of the expert, 0 of the agent

which is algorithm 1 of the paper with lambda_samp = 1. Of n-step rows r is the discounted sum of as many of these.
`sqil_dqn` is the same over double DQN (`policy/dqn.py`), `sqil_sac` over SAC for continuous actions (`policy/sac.py`).
"""

from __future__ import annotations

from typing import Any, ClassVar

from ding_like.policy.dqn import DQNPolicy
from ding_like.policy.from_experts import FromExperts
from ding_like.policy.sac import SACPolicy
from ding_like.policy.sql import SQLPolicy
from ding_like.utils.registries import POLICY_REGISTRY


class SQILRewards(FromExperts):
    """Policy whose rewards are 1 for an expert's steps and 0 for the agent's own."""

    rewards_instead: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def why_no_reward_model(self) -> str:
        """Return why rows cannot be given other rewards."""
        return "its rewards are 1 for the expert and 0 for the agent"


@POLICY_REGISTRY.register("sqil")
class SQILPolicy(SQILRewards, SQLPolicy):
    """Imitation by soft Q-learning of discrete actions."""

    config: dict[str, Any] = dict(type="sqil")


@POLICY_REGISTRY.register("sqil_dqn")
class SQILDQNPolicy(SQILRewards, DQNPolicy):
    """Imitation by deep Q-learning of discrete actions."""

    config: dict[str, Any] = dict(type="sqil_dqn")


@POLICY_REGISTRY.register("sqil_sac")
class SQILSACPolicy(SQILRewards, SACPolicy):
    """Imitation by soft actor-critic, of continuous actions."""

    config: dict[str, Any] = dict(type="sqil_sac")
