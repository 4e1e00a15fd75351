"""LunarLander as gymnasium has it; env type 'lunarlander'."""

from __future__ import annotations

from ding_like.envs.gymnasium_env import DiEngineGymEnv
from ding_like.utils.registries import ENV_REGISTRY


@ENV_REGISTRY.register("lunarlander")
class LunarLanderEnv(DiEngineGymEnv):
    """Env of LunarLander-v3, with four actions, or LunarLanderContinuous-v3; at most 1,000 steps."""

    config = {**DiEngineGymEnv.config, "env_id": "LunarLander-v3"}
    ids = {"LunarLander-v2": "LunarLander-v3", "LunarLanderContinuous-v2": "LunarLanderContinuous-v3"}
