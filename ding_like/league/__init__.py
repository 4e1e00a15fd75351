"""Leagues: many players, some learning and some past, and who plays whom."""

from ding_like.league.league import BaseLeague, OneVsOneLeague, create_league
from ding_like.league.payoff import BattleSharedPayoff, Ratings
from ding_like.league.player import (
    ActivePlayer,
    HistoricalPlayer,
    LeagueExploiter,
    MainExploiter,
    MainPlayer,
    NaiveSpPlayer,
    Player,
    pfsp,
)

__all__ = [
    "ActivePlayer",
    "BaseLeague",
    "BattleSharedPayoff",
    "HistoricalPlayer",
    "LeagueExploiter",
    "MainExploiter",
    "MainPlayer",
    "NaiveSpPlayer",
    "OneVsOneLeague",
    "Player",
    "Ratings",
    "create_league",
    "pfsp",
]
