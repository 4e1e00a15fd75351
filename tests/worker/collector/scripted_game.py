"""Games whose every observation says who made it, and actors that answer so that every action can be recognised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from ding_like.envs.game import GameStep


class ScriptedGame:
    """Observe [game, player, episode, move of the game]; reward player p for move t of episode k: 100 k + 10 t + p.

    Game e's episode k has `lengths[(e + k) % len]` moves. `in_turn`: players move one after another, else all at once.
    `early`: player 0 is done after so many moves. `faults` maps (game, episode, move) to "raise", "nan" or "reward".
    """

    def __init__(
        self,
        game: int,
        *,
        num_players: int = 2,
        in_turn: bool = False,
        lengths: Sequence[int] = (3, 5, 1, 4),
        early: int | None = None,
        faults: Mapping[tuple[int, int, int], str] | None = None,
        episodes: list[int] | None = None,
    ) -> None:
        self.num_players = num_players
        self.observation_space = spaces.Box(-1e9, 1e9, (4,), np.float32)
        self.action_space = spaces.Discrete(1000)
        self._game, self._in_turn, self._lengths, self._early = game, in_turn, lengths, early
        self._faults = dict(faults or {})
        self._episode = [-1] if episodes is None else episodes  # outlives the game where it is made anew
        self.closed = False

    def reset(self, seed: int | None = None) -> tuple[Sequence[Any], Sequence[int]]:
        self._episode[0] += 1
        self._move = 0
        return self._obs(), self._to_move()

    def step(self, actions: Mapping[int, Any]) -> GameStep:
        assert sorted(actions) == sorted(self._to_move())
        episode, players = self._episode[0], range(self.num_players)
        for player, action in actions.items():
            assert int(action) == action_of(self._game, player, episode, self._move), "an action of another lane"
        self._move += 1
        fault = self._faults.pop((self._game, episode, self._move), None)
        if fault == "raise":
            raise RuntimeError("the game broke")
        over = self._move >= self._lengths[(self._game + episode) % len(self._lengths)]
        is_early = self._early is not None and self._move >= self._early
        done = [over or (is_early and player == 0) for player in players]
        reward = [100.0 * episode + 10.0 * self._move + player for player in players]
        obs = self._obs()
        if fault == "nan":
            obs[-1][0] = np.nan
        if fault == "reward":
            reward[0] = np.inf
        return GameStep(obs, reward, done, [False] * self.num_players, () if over else self._to_move(), ())

    def close(self) -> None:
        self.closed = True

    def _obs(self) -> list[Any]:
        own = [self._game, 0, self._episode[0], self._move]
        return [np.array([own[0], player, *own[2:]], np.float32) for player in range(self.num_players)]

    def _to_move(self) -> Sequence[int]:
        alive = [player for player in range(self.num_players) if not self._is_out(player)]
        return [alive[self._move % len(alive)]] if self._in_turn else alive

    def _is_out(self, player: int) -> bool:
        return player == 0 and self._early is not None and self._move >= self._early


def action_of(game: int, player: int, episode: int, move: int) -> int:
    """Return the one action that a game takes of a player at a move."""
    return (game * 131 + player * 37 + episode * 17 + move * 7) % 1000


class ScriptedActor:
    """Answer each observation with the action that its game takes."""

    def __init__(self) -> None:
        self.seen = 0

    def act(self, obs: Any, *, lanes: Any, is_first: Any, rng: Any, **setting: Any) -> dict[str, Any]:
        self.seen += len(lanes)
        rows = obs.astype(np.int64)
        assert (rows[:, 0] == lanes).all(), "an observation of another game"
        assert ((rows[:, 3] == 0) <= is_first).all()
        return {"action": np.array([action_of(*row) for row in rows.tolist()])}

    def reset(self, lanes: Any = None) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None: ...
