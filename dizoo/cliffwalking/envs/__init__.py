"""The cliff walking environment."""

from dizoo.cliffwalking.envs.cliffwalking_env import CliffWalkingEnv

__all__ = ["CliffWalkingEnv"]
