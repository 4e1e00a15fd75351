"""The taxi environment."""

from dizoo.taxi.envs.taxi_env import TaxiEnv

__all__ = ["TaxiEnv"]
