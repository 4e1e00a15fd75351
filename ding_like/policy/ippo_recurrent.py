"""Independent PPO with memory: the loss of `policy/ippo.py`, of a network with recurrent layers.

The actor keeps the recurrent state of each agent, [N, H] by lane, and rows hold it as it was before each step. To
learn, the rows of each agent are cut into sequences as `policy/ppo_recurrent.py` says; one ends where its agent leaves.
"""

from __future__ import annotations

from typing import Any

from ding_like.policy.by_agent import OnPolicyByAgent
from ding_like.policy.ppo_recurrent import PPORecurrentPolicy
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("ippo_recurrent")
class IPPORecurrentPolicy(OnPolicyByAgent, PPORecurrentPolicy):
    """Independent PPO with a recurrent model of each agent's views."""

    config: dict[str, Any] = dict(
        type="ippo_recurrent",
        learn=dict(
            # Rows of a mini-batch: each is of one agent.
            batch_size=64,
        ),
    )
    model_name = "ippo_recurrent"
