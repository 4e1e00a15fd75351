"""The multi-agent MuJoCo environment."""

from dizoo.multiagent_mujoco.envs.multi_mujoco_env import MultiMujocoEnv

__all__ = ["MultiMujocoEnv"]
