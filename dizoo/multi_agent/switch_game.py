"""Agents in two rooms with a corridor between that takes one at a time, after 'Switch' of Sunehag et al. 2018.

a # # # b      a, b, c: where agents 0, 1 and 2 begin; each wants to the same row of the other room
. . . . .
c # # # .
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from ding_like.envs.team import Team
from ding_like.types import Array, Config, EnvAction, EnvObs, Info
from ding_like.utils.bounds import Bounds
from ding_like.utils.registries import ENV_REGISTRY

Cell = tuple[int, int]  # row and column

# Both rooms have three cells, one above the other; the corridor joins their middle ones.
CELLS: list[Cell] = [*((row, column) for column in (0, 4) for row in range(3)), *((1, column) for column in (1, 2, 3))]
_MOVES = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))  # stay, up, down, left, right
_STARTS: tuple[Cell, ...] = ((0, 0), (0, 4), (2, 0))
STEPS, ARRIVAL, STEP_COST = 20, 1.0, 0.05
_PIXELS = 60  # of a cell's side
_COLOURS = ((0, 114, 178), (213, 94, 0), (0, 158, 115))
# Number of agents -> the best return of the team, found by trying everything (tests/envs/test_team_games.py).
BEST_RETURNS = {2: 1.15, 3: 1.6}


@ENV_REGISTRY.register("switch_game")
class SwitchGame(Team):
    """Game of two or three agents who pass each other by a corridor of one cell's width, within 20 steps.

    Moves are stay, up, down, left and right, one agent after the other; a move into a taken cell has no effect, one
    into a wall is masked. Each step costs an agent 0.05, and pays 1 to one that arrives, which leaves the game. The
    reward of the team is the sum. Agents see their own cell and which cells others are in; the state is the cells of
    all and the time.
    """

    config = {
        # Agents, 2 or 3.
        "agents": 2,
    }
    config_bounds: ClassVar[Mapping[str, Bounds]] = {"agents": Bounds(2, 3)}
    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 4}  # type: ignore[misc]

    def __init__(self, cfg: Config | None = None) -> None:
        agents, cells = int({**self.config, **(cfg or {})}["agents"]), len(CELLS)
        own = spaces.Box(0.0, 1.0, (2 * cells,), np.float32)
        self._set_spaces(
            [own] * agents, [spaces.Discrete(len(_MOVES))] * agents, state_size=agents * cells + 1, has_mask=True
        )
        self._goals = [(row, 4 - column) for row, column in _STARTS[:agents]]
        self.render_mode = (cfg or {}).get("render_mode")
        self._places: list[Cell | None] = [None] * agents  # None: it has arrived
        self._time = 0

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[EnvObs, Info]:
        super().reset(seed=seed)
        self._places, self._time = list(_STARTS[: self.num_agents]), 0
        return self._observe([0.0] * self.num_agents), {}

    def step(self, action: EnvAction) -> tuple[EnvObs, float, bool, bool, Info]:
        self._time += 1
        places, rewards = move(self._places, self._each_action(action), self._goals)
        self._places = places
        terminated = not any(places)
        truncated = self._time >= STEPS and not terminated
        info = self._paid(rewards, is_over=terminated or truncated)
        return self._observe(rewards), sum(rewards), terminated, truncated, info

    def render(self) -> Array:
        """Return the rooms and the corridor, uint8 [180, 300, 3]: agents in their colours, their goals as frames."""
        picture = np.full((3 * _PIXELS, 5 * _PIXELS, 3), 60, np.uint8)
        for cell in CELLS:
            _square(picture, cell, 2)[:] = 235
        for goal, colour in zip(self._goals, _COLOURS, strict=False):
            _square(picture, goal, 6)[:] = colour
            _square(picture, goal, 10)[:] = 235
        for place, colour in zip(self._places, _COLOURS, strict=False):
            if place is not None:
                _square(picture, place, 16)[:] = colour
        return picture

    def _observe(self, rewards: Sequence[float]) -> dict[str, Array]:
        cells = np.zeros((self.num_agents, len(CELLS)), np.float32)
        for agent, place in enumerate(self._places):
            if place is not None:
                cells[agent, CELLS.index(place)] = 1.0
        seen = np.concatenate([cells, cells.sum(axis=0) - cells], axis=1)
        alive = [place is not None for place in self._places]
        return self._joint(
            list(seen),
            np.append(cells.ravel(), self._time / STEPS),
            alive=alive,
            ended=[not each for each in alive],
            rewards=rewards,
            masks=[None if place is None else _legal(place) for place in self._places],
        )


def _square(picture: Array, cell: Cell, margin: int) -> Array:
    """Return the pixels of a cell, without a margin, as a view."""
    (top, left), size = (_PIXELS * cell[0], _PIXELS * cell[1]), _PIXELS - margin
    return picture[top + margin : top + size, left + margin : left + size]


def move(
    places: Sequence[Cell | None], actions: Sequence[int], goals: Sequence[Cell]
) -> tuple[list[Cell | None], list[float]]:
    """Return where each agent is after its move, None where it has arrived, and what each is paid."""
    now, rewards = list(places), [0.0] * len(places)
    for agent, (place, action) in enumerate(zip(places, actions, strict=True)):
        if place is None:
            continue
        following = (place[0] + _MOVES[action][0], place[1] + _MOVES[action][1])
        if following in CELLS and following not in now:
            now[agent] = following
        rewards[agent] = -STEP_COST
        if now[agent] == goals[agent]:
            now[agent] = None
            rewards[agent] += ARRIVAL
    return now, rewards


def _legal(place: Cell) -> list[bool]:
    """Return bool[5]: which moves from a cell end in a cell."""
    return [(place[0] + down, place[1] + right) in CELLS for down, right in _MOVES]
