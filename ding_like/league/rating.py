"""Rate the players of a league: Elo, and a Bayesian skill in the manner of TrueSkill."""

from __future__ import annotations

from typing import Any

from ding_like.errors import ConfigError
from ding_like.league.payoff import DRAW, LOSS, WIN
from ding_like.types import State
from ding_like.utils.imports import pip_line

_ELO_START, _ELO_K, _ELO_SCALE = 1000.0, 32.0, 400.0


class Ratings:
    """Keep Elo numbers (Elo 1978; K = 32, start 1000) and skills (mean, deviation) of players.

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
