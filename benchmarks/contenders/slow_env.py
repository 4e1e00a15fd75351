"""CartPole with steps of half a millisecond: `benchmarks.contenders.slow_env:SlowCartPole-v0`."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

STEP_S = 0.0005


class SlowCartPole(CartPoleEnv):
    """Env whose step takes `STEP_S` of its thread's own time: waiting for a processor does not count."""

    def step(self, action: Any) -> Any:
        end_s = time.thread_time() + STEP_S
        result = super().step(action)
        while time.thread_time() < end_s:
            pass
        return result


gymnasium.register("SlowCartPole-v0", SlowCartPole, max_episode_steps=500)
