"""Keep win rates between the players of a league, older games counting less."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ding_like.errors import ConfigError, SchemaError
from ding_like.types import Array, State
from ding_like.utils.bounds import Configurable

# What a game is worth to the home player.
WIN, DRAW, LOSS = 1, 0, -1
RESULTS = {"wins": WIN, "draws": DRAW, "losses": LOSS, WIN: WIN, DRAW: DRAW, LOSS: LOSS}


class BattleSharedPayoff(Configurable):
    """Hold decayed numbers of wins, draws and losses of each pair of players; `payoff[home, away]` is a win rate.

    A draw is half a win. Pairs with fewer than `min_win_rate_games` games count as equal: 0.5.
    """

    config: dict[str, Any] = dict(
        type="battle",
        # Factor by which each game of a pair weakens the earlier results.
        decay=0.99,
        # Games of a pair from which its win rate counts; with fewer it is 0.5.
        min_win_rate_games=8,
    )

    def __init__(self, cfg: Mapping[str, Any] | None = None) -> None:
        merged = {**self.config, **(cfg or {})}
        self._decay, self._min_games = float(merged["decay"]), int(merged["min_win_rate_games"])
        if not 0.0 < self._decay <= 1.0:
            raise ConfigError(f"payoff.decay is {self._decay}; expected more than 0, at most 1.")
        # (first, second) in order of their names -> games ever, and decayed [wins, draws, losses] of the first.
        self._games: dict[tuple[str, str], int] = {}
        self._results: dict[tuple[str, str], Array] = {}

    def update(self, job_info: Mapping[str, Any]) -> None:
        """Count the games of a finished job: `player_id` [home, away] and `result`, home's, in order.

        A result is 'wins', 'draws' or 'losses', or 1, 0 or -1. Raises SchemaError for anything else. A player's games
        against itself say nothing and are left out.
        """
        ids, given = job_info["player_id"], job_info["result"]
        if len(ids) != 2 or not all(_is_result(each) for each in given):
            raise SchemaError(f"a job has two players and results, not {ids!r:.80} and {given!r:.80}.")
        home, away = ids
        if home == away or not len(given):
            return
        pair, sign = ((home, away), 1) if home < away else ((away, home), -1)
        results = self._results.setdefault(pair, np.zeros(3))
        # Place 0: wins, 1: draws, 2: losses.
        places = [1 - sign * RESULTS[each] for each in given]
        ages = np.arange(len(places) - 1, -1, -1)
        results *= self._decay ** len(places)
        np.add.at(results, places, self._decay**ages)
        self._games[pair] = self._games.get(pair, 0) + len(places)

    def num_games(self, home: str, away: str) -> int:
        """Return how many games two players have played."""
        return self._games.get((min(home, away), max(home, away)), 0)

    def win_rate(self, home: str, away: str) -> float:
        """Return home's win rate against away."""
        pair = (min(home, away), max(home, away))
        if home == away or self.num_games(home, away) < self._min_games:
            return 0.5
        wins, draws, losses = self._results[pair]
        rate = float((wins + 0.5 * draws) / (wins + draws + losses))
        return rate if home == pair[0] else 1.0 - rate

    def __getitem__(self, players: tuple[str | Sequence[str], str | Sequence[str]]) -> Array:
        """Return the win rates [H, A] of home players against away players, ids or lists of ids."""
        homes, aways = ([each] if isinstance(each, str) else list(each) for each in players)
        return np.array([[self.win_rate(home, away) for away in aways] for home in homes]).reshape(
            len(homes), len(aways)
        )

    def state_dict(self) -> State:
        """Return plain data."""
        return {
            "pairs": [
                [*pair, games, *(float(each) for each in self._results[pair])] for pair, games in self._games.items()
            ]
        }

    def load_state_dict(self, state: State) -> None:
        """Take over what `state_dict` returned."""
        self._games = {(first, second): games for first, second, games, *_ in state["pairs"]}
        self._results = {(first, second): np.array(results) for first, second, _, *results in state["pairs"]}


def _is_result(given: Any) -> bool:
    return isinstance(given, (str, int)) and given in RESULTS
