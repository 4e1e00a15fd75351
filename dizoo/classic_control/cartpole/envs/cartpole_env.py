"""CartPole as gymnasium has it; env type 'cartpole'."""

from __future__ import annotations

from ding_like.envs import GymnasiumEnv
from ding_like.utils.registries import ENV_REGISTRY


@ENV_REGISTRY.register("cartpole")
class CartPoleEnv(GymnasiumEnv):
    """Make CartPole-v1: a reward of 1 for each step, at most 500 steps."""

    config = {**GymnasiumEnv.config, "env_id": "CartPole-v1"}
