"""An env with metrics of its own: walk to 3, which is said at the episode's end alone."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class ReachingEnv(gymnasium.Env[np.ndarray, int]):
    observation_space = gymnasium.spaces.Box(-10, 10, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.x = self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.x, self.t = self.x + (1 if action else -1), self.t + 1
        done, late = self.x >= 3, self.t >= 8
        info = {"is_success": done, "distance": np.float32(3 - self.x), "word": "x"} if done or late else {}
        return np.array([self.x], np.float32), float(done), done, late and not done, info


gymnasium.register("Reaching-v0", entry_point=ReachingEnv)
