"""CartPole as gymnasium has it; env type 'cartpole'."""

from __future__ import annotations

from ding_like.envs.gymnasium_env import DiEngineGymEnv, SameEnv
from ding_like.utils.registries import ENV_REGISTRY


@ENV_REGISTRY.register("cartpole")
class CartPoleEnv(DiEngineGymEnv):
    """Env of CartPole-v1: a reward of 1 for each step, at most 500 steps; `env_id="CartPole-v0"`: at most 200."""

    config = {**DiEngineGymEnv.config, "env_id": "CartPole-v1"}
    # Nothing else differs, and gymnasium would call v0 out of date.
    ids = {"CartPole-v0": SameEnv("CartPole-v1", max_episode_steps=200)}
    di_engine_defaults = {"env_id": "CartPole-v0"}
