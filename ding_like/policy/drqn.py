"""DRQN: Q-learning with a recurrent network from sequences drawn uniformly (Hausknecht and Stone 2015).

The plain form of R2D2, whose update it is (`policy/r2d2.py`): values on their own scale, one-step targets, no
priorities, no burn-in and a target network that is copied now and then. A row begins with the recurrent state that the
actor had there, where the paper begins with zeros.
"""

from __future__ import annotations

from typing import Any

from ding_like.policy.r2d2 import R2D2Policy
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("drqn")
class DRQNPolicy(R2D2Policy):
    """Learn Q values of discrete actions from sequences drawn uniformly, with a recurrent network."""

    config: dict[str, Any] = dict(
        type="drqn",
        priority=False,
        priority_IS_weight=False,
        discount_factor=0.99,
        nstep=1,
        burnin_step=0,
        learn_unroll_len=10,
        learn=dict(value_rescale=False, learning_rate=1e-3, target_update_freq=100, target_theta=None),
        other=dict(replay_buffer=dict(type="naive")),
    )
