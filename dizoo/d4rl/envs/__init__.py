"""The tasks of D4RL on gymnasium's MuJoCo environments."""

from dizoo.d4rl.envs.d4rl_env import D4RLEnv

__all__ = ["D4RLEnv"]
