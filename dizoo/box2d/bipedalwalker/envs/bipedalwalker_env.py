"""BipedalWalker as gymnasium has it; env type 'bipedalwalker'."""

from __future__ import annotations

from ding_like.envs.gymnasium_env import DiEngineGymEnv
from ding_like.utils.registries import ENV_REGISTRY


@ENV_REGISTRY.register("bipedalwalker")
class BipedalWalkerEnv(DiEngineGymEnv):
    """Env of BipedalWalker-v3 or BipedalWalkerHardcore-v3; `rew_clip=True`: a fall costs 10 in training, not 100."""

    config = {**DiEngineGymEnv.config, "env_id": "BipedalWalker-v3"}
    ids = {
        "BipedalWalker-v2": "BipedalWalker-v3",
        "BipedalWalkerHardcore-v2": "BipedalWalkerHardcore-v3",
    }
    clip_range = (-10.0, None)
