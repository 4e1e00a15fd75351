"""The environment of partial observation."""

from dizoo.pomdp.envs.atari_env import PomdpEnv

__all__ = ["PomdpEnv"]
