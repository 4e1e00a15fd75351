"""The BitFlip environment."""

from dizoo.bitflip.envs.bitflip_env import BitFlip, BitFlipEnv

__all__ = ["BitFlip", "BitFlipEnv"]
