"""Independent PPO (de Witt et al. 2020): each agent of a team learns by PPO, and takes the others for its env.

With r = exp(log_prob - log_prob when acting) of agent i's action given what it saw, A its generalised advantage, of its
own rewards and of the critic's values V of its own view, and R = A + V when acting, the loss is PPO's

    mean over agents' rows of -min(r A, clip(r, 1 - c, 1 + c) A) + value_weight (V - R)^2 - entropy_weight entropy

All agents share both networks, which see an agent's number, one-hot, beside its view. What an agent's row is, and how
one that leaves is learned from, is in `policy/by_agent.py`.
"""

from __future__ import annotations

from typing import Any

from ding_like.policy.by_agent import OnPolicyByAgent
from ding_like.policy.ppo import PPOPolicy
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("ippo")
class IPPOPolicy(OnPolicyByAgent, PPOPolicy):
    """Clipped policy gradients of each agent of a team by itself, for discrete or continuous actions."""

    config: dict[str, Any] = dict(
        type="ippo",
        learn=dict(
            # Rows of a mini-batch: each is of one agent.
            batch_size=64,
        ),
    )
    model_name = "ippo"
