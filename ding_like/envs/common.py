"""Home of `affine_transform` in DI-engine, where its envs import it from."""

from ding_like.envs.di_engine import affine_transform as affine_transform
