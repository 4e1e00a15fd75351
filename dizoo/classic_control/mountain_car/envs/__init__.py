"""The MountainCar environment."""

from dizoo.classic_control.mountain_car.envs.mtcar_env import MountainCarEnv

__all__ = ["MountainCarEnv"]
