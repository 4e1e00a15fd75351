"""The chain environment."""

from dizoo.chain.envs.chain_env import Chain, ChainEnv

__all__ = ["Chain", "ChainEnv"]
