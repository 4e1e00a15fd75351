"""A goal env small enough to see through: a point on a line, goals are places, and a step costs 1 until it is there."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class LineEnv(gymnasium.Env[Any, Any]):
    """Move by -1 or +1 on whole numbers of two axes; episodes end at the goal or after `limit` steps."""

    def __init__(self, limit: int = 12, *, flat: bool = False) -> None:
        self._limit, self._flat = limit, flat
        box = spaces.Box(-100.0, 100.0, (2,), np.float32)
        parts = {"observation": box, "achieved_goal": box, "desired_goal": box}
        self.observation_space = spaces.Box(-100.0, 100.0, (4,), np.float32) if flat else spaces.Dict(parts)
        self.action_space = spaces.Discrete(4)
        self.is_closed = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._place = self.np_random.integers(-2, 3, 2).astype(np.float32)
        self._goal = self.np_random.integers(-2, 3, 2).astype(np.float32)
        self._steps = 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._place[action // 2] += 1 if action % 2 else -1
        self._steps += 1
        terminated = bool(self.compute_terminated(self._place, self._goal, {}))
        reward = float(self.compute_reward(self._place, self._goal, {}))
        return self._obs(), reward, terminated, self._steps >= self._limit, {}

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return np.equal(achieved_goal, desired_goal).all(axis=-1) - 1.0

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return np.equal(achieved_goal, desired_goal).all(axis=-1)

    def close(self) -> None:
        self.is_closed = True

    def _obs(self) -> Any:
        if self._flat:
            return np.concatenate([self._place, self._goal])
        return {
            "observation": self._place.copy(),
            "achieved_goal": self._place.copy(),
            "desired_goal": self._goal.copy(),
        }
