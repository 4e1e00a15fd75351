"""Matrix games of two players: both choose at once, once; what one wins the other loses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from ding_like.envs.game import GameStep
from ding_like.errors import ConfigError
from ding_like.types import Array
from ding_like.utils.bounds import Configurable
from ding_like.utils.registries import ENV_REGISTRY

# Rock, paper, scissors where a win by rock counts twice: the equilibrium is not the even mixture but (1/4, 1/2, 1/4).
BIASED_RPS = [[0, -1, 2], [1, 0, -1], [-2, 1, 0]]
BIASED_RPS_EQUILIBRIUM = (0.25, 0.5, 0.25)


@ENV_REGISTRY.register("matrix_game")
class MatrixGame(Configurable):
    """Pay player 0 `payoff[a][b]` and player 1 the negative, for their actions a and b; there is nothing to see."""

    config = {"payoff": BIASED_RPS}

    @classmethod
    def check_config(cls, cfg: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield (path, what is wrong) for every contradiction."""
        rows = cfg["payoff"]
        if not rows or any(len(row) != len(rows) for row in rows):
            yield "payoff", f"is {rows!r}; expected a square of numbers, as both players choose among the same actions"

    def __init__(self, cfg: Mapping[str, Any] | None = None) -> None:
        merged = {**self.config, **(cfg or {})}
        for path, fault in self.check_config(merged):
            raise ConfigError(f"env.{path} {fault}.")
        self._payoff: Array = np.array(merged["payoff"], np.float64)
        self.num_players = 2
        self.observation_space: Space[Any] = spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space: Space[Any] = spaces.Discrete(len(self._payoff))
        self._obs = [np.ones(1, np.float32)] * 2

    def reset(self, seed: int | None = None) -> tuple[Sequence[Any], Sequence[int]]:
        return self._obs, (0, 1)

    def step(self, actions: Mapping[int, Any]) -> GameStep:
        won = float(self._payoff[actions[0], actions[1]])
        return GameStep(self._obs, (won, -won), (True, True), (False, False), ())

    def close(self) -> None:
        """Hold nothing."""
