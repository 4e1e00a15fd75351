"""The two-step game of Rashid et al. 2018 (QMIX, section 5), which needs agents to value what the other will do."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from ding_like.envs.team import Team
from ding_like.types import Array, Config, EnvAction, EnvObs, Info
from ding_like.utils.registries import ENV_REGISTRY

# The first agent's first action chooses the second matrix.
_PAYOFF = np.array([[[7.0, 7.0], [7.0, 7.0]], [[0.0, 1.0], [1.0, 8.0]]])


@ENV_REGISTRY.register("two_step_game")
class TwoStepGame(Team):
    """Game of two agents that pays both 7 for the safe matrix; in the other 8 if both choose the second action.

    The best return is 8. The reward of the team is the payoff.
    """

    def __init__(self, cfg: Config | None = None) -> None:
        place = spaces.Box(0.0, 1.0, (3,), np.float32)
        self._set_spaces([place, place], [spaces.Discrete(2)] * 2, state_size=3)
        self._place = 0  # 0: the beginning, then 1 or 2

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[EnvObs, Info]:
        super().reset(seed=seed)
        self._place = 0
        return self._observe(0.0, is_over=False), {}

    def step(self, action: EnvAction) -> tuple[EnvObs, float, bool, bool, Info]:
        first, second = self._each_action(action)
        is_over = self._place > 0
        reward = float(_PAYOFF[self._place - 1][first, second]) if is_over else 0.0
        self._place = self._place or 1 + first
        return self._observe(reward, is_over=is_over), reward, is_over, False, self._paid([reward] * 2, is_over=is_over)

    def _observe(self, reward: float, *, is_over: bool) -> dict[str, Array]:
        place = np.eye(3, dtype=np.float32)[self._place]
        return self._joint([place, place], place, alive=[not is_over] * 2, ended=[is_over] * 2, rewards=[reward] * 2)
