"""Games of one joint action, by name: tests of what a team's values can represent and which equilibrium it finds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from ding_like.envs.team import Team
from ding_like.types import Array, Config, EnvAction, EnvObs, Info
from ding_like.utils.registries import ENV_REGISTRY

# Row: the first agent's action, column: the second's.
PAYOFFS: dict[str, Array] = {
    name: np.array(rows, np.float64)
    for name, rows in {
        # Claus & Boutilier 1998, figure 2: the best joint action lies beside the worst.
        "climbing": [[11, -30, 0], [-30, 7, 6], [0, 0, 5]],
        # The same paper, figure 1 with k = -100: two best joint actions, which agents must choose between alike.
        "penalty": [[10, 0, -100], [0, 2, 0], [-100, 0, 10]],
        # Rashid et al. 2018, table 1, state 2B: no sum of the agents' values, but growing in each of them.
        "monotonic": [[0, 1], [1, 8]],
        # Son et al. 2019, table 1: growing in no agent's value. A monotonic mixer settles for 0.
        "nonmonotonic": [[8, -12, -12], [-12, 0, 0], [-12, 0, 0]],
    }.items()
}


@ENV_REGISTRY.register("team_matrix_game")
class TeamMatrixGame(Team):
    """Game of two agents and one step, which pays both what the matrix of `game` has for their joint action.

    The reward of the team is the payoff. Agents and the state see a constant 1.
    """

    config = {
        # Name of the matrix: "climbing", "penalty", "monotonic" or "nonmonotonic".
        "game": "climbing",
    }
    config_choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {"game": tuple(PAYOFFS)}

    def __init__(self, cfg: Config | None = None) -> None:
        self.payoff = PAYOFFS[{**self.config, **(cfg or {})}["game"]]
        one = spaces.Box(0.0, 1.0, (1,), np.float32)
        self._set_spaces([one, one], [spaces.Discrete(actions) for actions in self.payoff.shape], state_size=1)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[EnvObs, Info]:
        super().reset(seed=seed)
        return self._observe(0.0, is_over=False), {}

    def step(self, action: EnvAction) -> tuple[EnvObs, float, bool, bool, Info]:
        reward = float(self.payoff[tuple(self._each_action(action))])
        return self._observe(reward, is_over=True), reward, True, False, self._paid([reward] * 2, is_over=True)

    def _observe(self, reward: float, *, is_over: bool) -> dict[str, Array]:
        one = np.ones(1, np.float32)
        return self._joint([one, one], one, alive=[not is_over] * 2, ended=[is_over] * 2, rewards=[reward] * 2)
