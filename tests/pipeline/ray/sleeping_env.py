"""CartPole that waits a while in each step, without using the processor: many such envs share a few processors."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

STEP_S = 0.002


class SleepingCartPole(CartPoleEnv):
    """CartPole that waits `times` * STEP_S in each step."""

    def __init__(self, times: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._wait_s = times * STEP_S

    def step(self, action: Any) -> Any:
        time.sleep(self._wait_s)
        return super().step(action)


gymnasium.register("SleepingCartPole-v0", SleepingCartPole, max_episode_steps=500)
gymnasium.register("TenfoldSleepingCartPole-v0", SleepingCartPole, max_episode_steps=500, kwargs={"times": 10})
