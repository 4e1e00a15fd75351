"""MountainCar as gymnasium has it; env type 'mountain_car'."""

from __future__ import annotations

from ding_like.envs.gymnasium_env import DiEngineGymEnv
from ding_like.utils.registries import ENV_REGISTRY


@ENV_REGISTRY.register("mountain_car")
class MountainCarEnv(DiEngineGymEnv):
    """Env of MountainCar-v0: a reward of -1 for each step until the car is up, at most 200 steps."""

    config = {**DiEngineGymEnv.config, "env_id": "MountainCar-v0"}
