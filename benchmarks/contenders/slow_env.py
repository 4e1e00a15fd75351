"""CartPole with slow steps: `benchmarks.contenders.slow_env:Busy500us-v0` takes half a millisecond of a processor."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

BUSY_US = (500, 2000, 5000)
ASLEEP_US = (2000, 5000, 20000)


class SlowCartPole(CartPoleEnv):
    """CartPole whose step takes `step_s` seconds: of its thread's own time, or asleep."""

    def __init__(self, step_s: float = 0.0005, *, sleeps: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._step_s, self._sleeps = step_s, sleeps

    def step(self, action: Any) -> Any:
        if self._sleeps:
            time.sleep(self._step_s)
            return super().step(action)
        end_s = time.thread_time() + self._step_s  # waiting for a processor does not count
        result = super().step(action)
        while time.thread_time() < end_s:
            pass
        return result


for _name, _lengths in {"Busy": BUSY_US, "Asleep": ASLEEP_US}.items():
    for _us in _lengths:
        gymnasium.register(
            f"{_name}{_us}us-v0",
            SlowCartPole,
            max_episode_steps=500,
            kwargs={"step_s": _us * 1e-6, "sleeps": _name == "Asleep"},
        )
