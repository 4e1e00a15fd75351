"""MAPPO with memory (Yu et al. 2022): the loss of `policy/mappo.py`, of an actor with a recurrent layer.

The actor keeps the recurrent state of each agent, [N, H] by lane; the critic sees the state and an agent's view, and
remembers nothing. To learn, the rows of each agent are cut into sequences as `policy/ppo_recurrent.py` says; one ends
where its agent leaves.
"""

from __future__ import annotations

from typing import Any

from ding_like.policy.by_agent import OnPolicyByAgent
from ding_like.policy.ppo_recurrent import PPORecurrentPolicy
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("mappo_recurrent")
class MAPPORecurrentPolicy(OnPolicyByAgent, PPORecurrentPolicy):
    """MAPPO with an actor that remembers an agent's views."""

    config: dict[str, Any] = dict(
        type="mappo_recurrent",
        learn=dict(
            # Rows of a mini-batch: each is of one agent.
            batch_size=1024,
            learning_rate=7e-4,
            entropy_weight=0.01,
            value_norm=True,
            grad_clip_value=10.0,
        ),
    )
    model_name = "mappo_recurrent"
    sees_state = True
