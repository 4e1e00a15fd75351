"""Environments: managers that run many of them behind arrays, adapters, and factories that make them from a config."""

from __future__ import annotations

from typing import Any

from ding_like.envs.check import Finding, check_env
from ding_like.envs.di_engine_adapter import DiEngineEnvManager
from ding_like.envs.di_engine_style import BaseEnv, BaseEnvTimestep, DiEngineStyleEnv
from ding_like.envs.ding_env_wrapper import DingEnvWrapper
from ding_like.envs.factory import EnvFactory, create_env_manager, get_vec_env_setting, make_env
from ding_like.envs.gymnasium_env import GymnasiumEnv
from ding_like.utils.lazy_exports import lazy_export

_MANAGERS = "ding_like.envs.di_engine_managers"
_WRAPPERS = "ding_like.envs.env_wrappers"
# Imported on first use: DI-engine's names, and its way to use them.
_HOMES = {
    "ActionRepeatWrapper": _WRAPPERS,
    "AsyncSubprocessEnvManager": _MANAGERS,
    "BaseEnvManager": _MANAGERS,
    "BaseEnvManagerV2": _MANAGERS,
    "ClipRewardWrapper": _WRAPPERS,
    "EpisodicLifeWrapper": _WRAPPERS,
    "EvalEpisodeReturnWrapper": _WRAPPERS,
    "FireResetWrapper": _WRAPPERS,
    "FlatObsWrapper": _WRAPPERS,
    "FrameStackWrapper": _WRAPPERS,
    "MaxAndSkipWrapper": _WRAPPERS,
    "NoopResetWrapper": _WRAPPERS,
    "ObsNormWrapper": _WRAPPERS,
    "ObsTransposeWrapper": _WRAPPERS,
    "RewardNormWrapper": _WRAPPERS,
    "ScaledFloatFrameWrapper": _WRAPPERS,
    "SubprocessEnvManager": _MANAGERS,
    "SubprocessEnvManagerV2": _MANAGERS,
    "SyncSubprocessEnvManager": _MANAGERS,
    "TimeLimitWrapper": _WRAPPERS,
    "WarpFrameWrapper": _WRAPPERS,
    "affine_transform": "ding_like.envs.common",
    "get_default_wrappers": "ding_like.envs.default_wrappers",
    "get_env_cls": "ding_like.envs.factory:env_class",
    "get_env_manager_cls": _MANAGERS,
}
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
    "DiEngineEnvManager",
    "DiEngineStyleEnv",
    "DingEnvWrapper",
    "EnvFactory",
    "Finding",
    "GymnasiumEnv",
    "check_env",
    "create_env_manager",
    "get_vec_env_setting",
    "make_env",
]


def __getattr__(name: str) -> Any:
    return lazy_export(__name__, _HOMES, name, instead=_INSTEAD)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
