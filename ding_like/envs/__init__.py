"""Environments: managers that run many of them behind arrays, adapters, and factories that make them from a config."""

from ding_like.envs.check import Finding, check_env
from ding_like.envs.ding_env_wrapper import DingEnvWrapper
from ding_like.envs.factory import EnvFactory, create_env_manager, get_vec_env_setting, make_env
from ding_like.envs.gymnasium_env import GymnasiumEnv
from ding_like.envs.seed_adapter import SeedEnvManager
from ding_like.envs.seed_style import BaseEnv, BaseEnvTimestep, SeedStyleEnv

__all__ = [
    "BaseEnv",
    "BaseEnvTimestep",
    "DingEnvWrapper",
    "EnvFactory",
    "Finding",
    "GymnasiumEnv",
    "SeedEnvManager",
    "SeedStyleEnv",
    "check_env",
    "create_env_manager",
    "get_vec_env_setting",
    "make_env",
]
