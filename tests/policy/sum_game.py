"""A continuous game of a team with a known optimum."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from ding_like.envs.team import Team

TARGET = 0.9


class SumGame(Team):
    """Two agents, each of which sees one number, whose actions must add up to 0.9 times the sum of both.

    A step pays both minus the square of what is missing, so that the best return is 0; an episode has one step.
    """

    def __init__(self, cfg: Any = None) -> None:
        one = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self._set_spaces([one, one], [one, one], state_size=2)

    def _observe(self, reward: float, *, is_over: bool) -> dict[str, Any]:
        seen, many = self._seen, [is_over] * 2
        return self._joint(list(seen), seen, alive=[not is_over] * 2, ended=many, rewards=[reward] * 2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._seen = self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)
        return self._observe(0.0, is_over=False), {}

    def step(self, action: Any) -> Any:
        missing = float(sum(own.sum() for own in self._each_action(action)) - TARGET * self._seen.sum())
        return self._observe(-(missing**2), is_over=True), -2.0 * missing**2, True, False, {}
