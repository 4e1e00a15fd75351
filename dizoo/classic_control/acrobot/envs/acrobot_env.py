"""Acrobot as gymnasium has it; env type 'acrobot'."""

from __future__ import annotations

from ding_like.envs.gymnasium_env import DiEngineGymEnv
from ding_like.utils.registries import ENV_REGISTRY


@ENV_REGISTRY.register("acrobot")
class AcrobotEnv(DiEngineGymEnv):
    """Env of Acrobot-v1: a reward of -1 for each step until the tip is up, at most 500 steps."""

    config = {**DiEngineGymEnv.config, "env_id": "Acrobot-v1"}
