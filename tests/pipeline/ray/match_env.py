"""A toy env whose optimum is known: name the number that is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

STEPS = 8
BEST = float(STEPS)


class Match(gymnasium.Env):
    """Env that shows one of three numbers and rewards its action by 1; an episode has 8 steps, so 8 is the best."""

    before_step: Callable[[], None] = staticmethod(lambda: None)  # what a test has every env do

    def __init__(self, **_: Any) -> None:
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (3,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._step = 0
        return self._show(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        type(self).before_step()
        reward = float(action == self._shown)
        self._step += 1
        return self._show(), reward, self._step == STEPS, False, {}

    def _show(self) -> Any:
        self._shown = int(self.np_random.integers(3))
        return np.eye(3, dtype=np.float32)[self._shown]
