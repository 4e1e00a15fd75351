"""The environments of the DeepMind Control Suite."""

from dizoo.dmc2gym.envs.dmc2gym_env import DMC2GymEnv

__all__ = ["DMC2GymEnv"]
