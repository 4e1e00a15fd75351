"""Strength of the players of a league: win rates, older games counting less, and ratings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ding_like.errors import ConfigError, SchemaError
from ding_like.types import Array, Config, State
from ding_like.utils.bounds import Configurable
from ding_like.utils.imports import pip_line

_ELO_START, _ELO_K, _ELO_SCALE = 1000.0, 32.0, 400.0
# Games of two players: which are to be played, and how they ended.
Job: TypeAlias = dict[str, Any]
# Value of a game for the home player.
WIN, DRAW, LOSS = 1, 0, -1
RESULTS = {"wins": WIN, "draws": DRAW, "losses": LOSS, WIN: WIN, DRAW: DRAW, LOSS: LOSS}


class BattleSharedPayoff(Configurable):
    """Decayed numbers of wins, draws and losses of each pair of players; `payoff[home, away]` is a win rate.

    A draw is half a win. Pairs with fewer than `min_win_rate_games` games count as equal: 0.5.
    """

    config: dict[str, Any] = dict(
        type="battle",
        # Factor by which each game of a pair weakens the earlier results.
        decay=0.99,
        # Games of a pair from which its win rate counts; with fewer it is 0.5.
        min_win_rate_games=8,
    )

    def __init__(self, cfg: Config | None = None) -> None:
        merged = {**self.config, **(cfg or {})}
        self._decay, self._min_games = float(merged["decay"]), int(merged["min_win_rate_games"])
        if not 0.0 < self._decay <= 1.0:
            raise ConfigError(f"payoff.decay is {self._decay}; expected more than 0, at most 1.")
        # (first, second) in order of their names -> games ever, and decayed [wins, draws, losses] of the first.
        self._games: dict[tuple[str, str], int] = {}
        self._results: dict[tuple[str, str], Array] = {}

    def update(self, job_info: Job) -> None:
        """Count the games of a finished job: `player_id` [home, away] and `result`, home's, in order.

        A result is 'wins', 'draws' or 'losses', or 1, 0 or -1. Raises SchemaError for anything else. A player's games
        against itself are left out.
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
        rates = [[self.win_rate(home, away) for away in aways] for home in homes]
        return np.array(rates).reshape(len(homes), len(aways))

    def state_dict(self) -> State:
        """Return plain data."""
        return {"pairs": [[*pair, games, *self._results[pair].tolist()] for pair, games in self._games.items()]}

    def load_state_dict(self, state: State) -> None:
        """Take over what `state_dict` returned."""
        self._games = {(first, second): games for first, second, games, *_ in state["pairs"]}
        self._results = {(first, second): np.array(results) for first, second, _, *results in state["pairs"]}


def _is_result(given: object) -> bool:
    return isinstance(given, (str, int)) and given in RESULTS


class Ratings:
    """Elo numbers (Elo 1978; K = 32, start 1000) and skills (mean, deviation) of players.

    Skills follow the Thurstone-Mosteller model of Weng and Lin 2011, a closed form of what TrueSkill (Herbrich et al.
    2006) infers; library openskill. Raises ConfigError where that is not installed.
    """

    def __init__(self) -> None:
        try:
            from openskill.models import ThurstoneMostellerFull
        except ImportError as error:
            raise ConfigError(f"a league rates players by openskill; install it with: {pip_line('league')}") from error
        self._model: Any = ThurstoneMostellerFull()
        self.elo: dict[str, float] = {}
        self._skill: dict[str, Any] = {}

    def add(self, player_id: str, like: str | None = None) -> None:
        """Take a player in, rated like another if one is named: a snapshot plays as well as its parent."""
        self.elo[player_id] = _ELO_START if like is None else self.elo[like]
        if like is None:
            self._skill[player_id] = self._model.rating()
        else:
            self._skill[player_id] = self._model.create_rating(list(self.skill(like)))

    def skill(self, player_id: str) -> tuple[float, float]:
        """Return (mean, deviation) of a player's skill; a new player has 25 and 25 / 3."""
        rating = self._skill[player_id]
        return float(rating.mu), float(rating.sigma)

    def update(self, home: str, away: str, result: int) -> None:
        """Count one game, won (1), drawn (0) or lost (-1) by `home`."""
        expected = 1.0 / (1.0 + 10.0 ** ((self.elo[away] - self.elo[home]) / _ELO_SCALE))
        change = _ELO_K * ((result + 1) / 2 - expected)
        self.elo[home] += change
        self.elo[away] -= change
        ranks = {WIN: [1, 2], DRAW: [1, 1], LOSS: [2, 1]}[result]
        rated = self._model.rate([[self._skill[home]], [self._skill[away]]], ranks=ranks)
        (self._skill[home],), (self._skill[away],) = rated

    def state_dict(self) -> State:
        """Return plain data."""
        return {"elo": dict(self.elo), "skill": {name: list(self.skill(name)) for name in self._skill}}

    def load_state_dict(self, state: State) -> None:
        """Take over what `state_dict` returned."""
        self.elo = dict(state["elo"])
        self._skill = {name: self._model.create_rating(list(each)) for name, each in state["skill"].items()}
