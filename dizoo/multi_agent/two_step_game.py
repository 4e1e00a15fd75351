"""The two-step game of Rashid et al. 2018 (QMIX, section 5), which needs agents to value what the other will do."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ding_like.types import Array
from ding_like.utils.registries import ENV_REGISTRY

# The first agent's first action chooses the second matrix.
_PAYOFF = np.array([[[7.0, 7.0], [7.0, 7.0]], [[0.0, 1.0], [1.0, 8.0]]])


@ENV_REGISTRY.register("two_step_game")
class TwoStepGame(gymnasium.Env[Any, Any]):
    """Pay 7 for the safe matrix; in the other 8 if both choose the second action. The best return is 8."""

    def __init__(self, cfg: Any = None) -> None:
        self.observation_space = spaces.Dict(
            {"agents": spaces.Box(0.0, 1.0, (2, 3), np.float32), "state": spaces.Box(0.0, 1.0, (3,), np.float32)}
        )
        self.action_space = spaces.MultiDiscrete([2, 2])
        self._place = 0  # 0: the beginning, then 1 or 2

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._place = 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._place == 0:
            self._place = 1 + int(action[0])
            return self._obs(), 0.0, False, False, {}
        reward = float(_PAYOFF[self._place - 1][int(action[0]), int(action[1])])
        return self._obs(), reward, True, False, {}

    def _obs(self) -> dict[str, Array]:
        place = np.eye(3, dtype=np.float32)[self._place]
        return {"agents": np.stack([place, place]), "state": place}
