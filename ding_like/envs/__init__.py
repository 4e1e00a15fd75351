"""Environments: managers that run many of them behind arrays, adapters, and factories that make them from a config."""

from __future__ import annotations

from ding_like.envs.check import Finding, check_env
from ding_like.envs.di_engine_style import BaseEnv, BaseEnvTimestep, DiEngineStyleEnv
from ding_like.envs.factory import EnvFactory, create_env_manager, get_vec_env_setting, make_env
from ding_like.envs.gymnasium_env import GymnasiumEnv
from ding_like.utils.registries import lazy_exports

# Imported on first use: DI-engine's names, and its way to use them.
_NAMES = """
    ActionRepeatWrapper AsyncSubprocessEnvManager BaseEnvManager BaseEnvManagerV2 ClipRewardWrapper DingEnvWrapper
    EpisodicLifeWrapper EvalEpisodeReturnWrapper FireResetWrapper FlatObsWrapper FrameStackWrapper MaxAndSkipWrapper
    NoopResetWrapper ObsNormWrapper ObsTransposeWrapper RewardNormWrapper ScaledFloatFrameWrapper SubprocessEnvManager
    SubprocessEnvManagerV2 SyncSubprocessEnvManager TimeLimitWrapper WarpFrameWrapper affine_transform
    get_default_wrappers get_env_manager_cls
"""
_HOMES = dict.fromkeys(_NAMES.split(), "ding_like.envs.di_engine")
_HOMES["get_env_cls"] = "ding_like.envs.factory:env_class"
# DI-engine's that are not here -> what to use.
_INSTEAD = {
    "EnvSupervisor": "use SyncSubprocessEnvManager, which restarts envs that break, or BaseEnvManager",
    "GymVectorEnvManager": "use create_env_manager(dict(type='gym_vector'), env_fn)",
    "PoolEnvManager": "use create_env_manager(dict(type='envpool'), env_fn)",
    "PoolEnvManagerV2": "use create_env_manager(dict(type='envpool'), env_fn)",
}

__all__ = [
    *_HOMES,
    "BaseEnv",
    "BaseEnvTimestep",
    "DiEngineStyleEnv",
    "EnvFactory",
    "Finding",
    "GymnasiumEnv",
    "check_env",
    "create_env_manager",
    "get_vec_env_setting",
    "make_env",
]

__getattr__, __dir__ = lazy_exports(__name__, _HOMES, instead=_INSTEAD)
