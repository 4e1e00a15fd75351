"""The CarRacing environment."""

from dizoo.box2d.carracing.envs.carracing_env import CarRacingEnv

__all__ = ["CarRacingEnv"]
