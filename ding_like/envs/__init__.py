"""Environments: managers that run many of them behind arrays, adapters, and factories that make them from a config."""

from ding_like.envs.check import Finding, check_env
from ding_like.envs.di_engine_adapter import DiEngineEnvManager
from ding_like.envs.di_engine_style import BaseEnv, BaseEnvTimestep, DiEngineStyleEnv
from ding_like.envs.ding_env_wrapper import DingEnvWrapper
from ding_like.envs.factory import EnvFactory, create_env_manager, get_vec_env_setting, make_env
from ding_like.envs.gymnasium_env import GymnasiumEnv

__all__ = [
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
