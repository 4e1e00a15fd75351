"""Home of the wrappers in DI-engine, where its scripts import them from."""

from ding_like.envs.di_engine import *  # noqa: F403
