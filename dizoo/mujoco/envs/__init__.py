"""The MuJoCo environments."""

from dizoo.mujoco.envs.mujoco_env import MujocoEnv

__all__ = ["MujocoEnv"]
