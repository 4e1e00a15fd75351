"""The frozen lake environment."""

from dizoo.frozen_lake.envs.frozen_lake_env import FrozenLakeEnv

__all__ = ["FrozenLakeEnv"]
