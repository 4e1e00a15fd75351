"""Cliff walking (Sutton and Barto 2018, example 6.6) as gymnasium has it; env type 'cliffwalking'."""

from __future__ import annotations

from ding_like.envs.gymnasium_env import DiEngineGymEnv, newest_id
from ding_like.utils.registries import ENV_REGISTRY

_NEWEST = newest_id("CliffWalking")


@ENV_REGISTRY.register("cliffwalking")
class CliffWalkingEnv(DiEngineGymEnv):
    """Env of 48 places: a reward of -1 for each step, -100 and back to the start for one off the cliff; best is -13.

    The id has no time limit, and a greedy policy may walk into a wall for ever: episodes end after 300 steps.
    """

    config = {**DiEngineGymEnv.config, "env_id": _NEWEST, "max_episode_steps": 300}
    ids = dict.fromkeys(("CliffWalking", "CliffWalking-v0"), _NEWEST)
