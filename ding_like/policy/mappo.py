"""MAPPO (Yu et al. 2022): PPO of each agent of a team, with a critic that sees the state.

The actor acts on an agent's own view; the critic, which is used to learn alone, sees that view and the state, what
the paper calls an agent-specific global state. With r = exp(log_prob - log_prob when acting) of agent i's action, V the
critic's value of (view of i, state), A the generalised advantage of agent i's rewards by V, and R = A + V when acting:

    mean over agents' rows of -min(r A, clip(r, 1 - c, 1 + c) A) + value_weight (V - R)^2 - entropy_weight entropy

The critic counts in deviations of the returns (value_norm), and all agents share both networks, as in the paper. What
an agent's row is, and how one that leaves is learned from, is in `policy/by_agent.py`.
"""

from __future__ import annotations

from typing import Any

from ding_like.policy.by_agent import OnPolicyByAgent
from ding_like.policy.ppo import PPOPolicy
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("mappo")
class MAPPOPolicy(OnPolicyByAgent, PPOPolicy):
    """Clipped policy gradients of each agent with a critic of the state, for discrete or continuous actions."""

    config: dict[str, Any] = dict(
        type="mappo",
        learn=dict(
            # Rows of a mini-batch: each is of one agent.
            batch_size=1024,
            learning_rate=7e-4,
            entropy_weight=0.01,
            value_norm=True,
            grad_clip_value=10.0,
        ),
    )
    model_name = "mappo"
    sees_state = True
