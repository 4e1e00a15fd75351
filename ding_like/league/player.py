"""Players of a league: those that learn, each with its choice of opponents, and snapshots of their earlier selves.

The kinds and their matchmaking follow Vinyals et al. 2019, "Grandmaster level in StarCraft II".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ding_like.config.tree import deep_merge
from ding_like.errors import ConfigError
from ding_like.league.payoff import BattleSharedPayoff
from ding_like.types import Array, Config, State
from ding_like.utils.bounds import Configurable
from ding_like.utils.registries import PLAYER_REGISTRY


class Player(Configurable):
    """Player of a league."""

    is_active = False

    def __init__(self, player_id: str, *, checkpoint_path: str, total_agent_step: int = 0) -> None:
        self.player_id = player_id
        self.checkpoint_path = checkpoint_path
        self.total_agent_step = total_agent_step

    def state_dict(self) -> State:
        """Return plain data, from which the league recreates the player."""
        return {
            "player_id": self.player_id,
            "checkpoint_path": self.checkpoint_path,
            "total_agent_step": self.total_agent_step,
        }


@PLAYER_REGISTRY.register("historical_player")
class HistoricalPlayer(Player):
    """Snapshot of an active player, which does not learn."""

    def __init__(self, player_id: str, *, parent_id: str, checkpoint_path: str, total_agent_step: int = 0) -> None:
        super().__init__(player_id, checkpoint_path=checkpoint_path, total_agent_step=total_agent_step)
        self.parent_id = parent_id

    def state_dict(self) -> State:
        return {**super().state_dict(), "parent_id": self.parent_id}


class ActivePlayer(Player):
    """Player that learns, against opponents that a sub-class chooses by drawing one of its `branch_probs`."""

    is_active = True
    category = ""
    config: dict[str, Any] = dict(
        # Agent steps from which a snapshot is taken if the player is strong; after twice as many in any case.
        one_phase_step=10,
        # Ways to choose an opponent; the probabilities sum to 1.
        branch_probs=dict(
            # Probability of a snapshot, drawn by how hard it is to beat (prioritised fictitious self-play).
            pfsp=0.5,
            # Probability of self-play.
            sp=0.5,
        ),
        # Win rate against every rival that makes a player strong.
        strong_win_rate=0.7,
    )
    config_free = ("branch_probs",)

    def __init__(self, cfg: Config, player_id: str, *, checkpoint_path: str, payoff: BattleSharedPayoff) -> None:
        super().__init__(player_id, checkpoint_path=checkpoint_path)
        self._cfg = deep_merge({**self.config, "branch_probs": {}}, cfg)
        self._branches = dict(cfg.get("branch_probs") or self.config["branch_probs"])
        self._payoff = payoff
        self.last_snapshot_step = 0
        unknown = [name for name in self._branches if not hasattr(self, f"_choose_{name}")]
        probabilities = list(self._branches.values())
        if unknown or not np.isclose(sum(probabilities), 1.0) or min(probabilities) < 0.0:
            known = sorted(name.removeprefix("_choose_") for name in dir(self) if name.startswith("_choose_"))
            raise ConfigError(
                f"league.{self.category}.branch_probs is {self._branches}; expected probabilities of "
                f"{', '.join(known)} that sum to 1."
            )

    def opponent(self, players: Sequence[Player], rng: np.random.Generator) -> Player:
        """Return the opponent of the next games, drawn among all players of the league."""
        names = list(self._branches)
        name = names[int(rng.choice(len(names), p=list(self._branches.values())))]
        chosen: Player = getattr(self, f"_choose_{name}")(players, rng)
        return chosen

    def is_trained_enough(self, players: Sequence[Player]) -> bool:
        """Return whether it is time for a snapshot: strong enough after one phase, in any case after two."""
        passed = self.total_agent_step - self.last_snapshot_step
        phase = self._cfg["one_phase_step"]
        if passed < phase:
            return False
        if passed >= 2 * phase:
            return True
        rivals = [each.player_id for each in self._rivals(players)]
        if not rivals:
            return False
        rates = self._payoff[self.player_id, rivals]
        return bool(rates.min() > self._cfg["strong_win_rate"])

    def is_to_reset(self, rng: np.random.Generator) -> bool:
        """Return whether the player begins from its first weights again after a snapshot."""
        return False

    def _rivals(self, players: Sequence[Player]) -> Sequence[Player]:
        """Return whom the player must beat to be trained enough."""
        return _historical(players)

    def _draw(self, among: Sequence[Player], rng: np.random.Generator, weighting: str = "squared") -> Player:
        """Draw an opponent by prioritised fictitious self-play; ourselves where there is none."""
        if not among:
            return self
        rates = self._payoff[self.player_id, [each.player_id for each in among]][0]
        return among[int(rng.choice(len(among), p=pfsp(rates, weighting)))]

    def _choose_pfsp(self, players: Sequence[Player], rng: np.random.Generator) -> Player:
        return self._draw(_historical(players), rng)

    def _choose_sp(self, players: Sequence[Player], rng: np.random.Generator) -> Player:
        """Play against the newest self."""
        return self

    def state_dict(self) -> State:
        return {**super().state_dict(), "last_snapshot_step": self.last_snapshot_step}

    def load_state_dict(self, state: State) -> None:
        """Take over what `state_dict` returned."""
        self.checkpoint_path = state["checkpoint_path"]
        self.total_agent_step, self.last_snapshot_step = state["total_agent_step"], state["last_snapshot_step"]


@PLAYER_REGISTRY.register("naive_sp_player")
class NaiveSpPlayer(ActivePlayer):
    """Player of half of its games against itself and half against snapshots, the harder ones more often."""

    category = "naive_sp_player"


@PLAYER_REGISTRY.register("main_player")
class MainPlayer(ActivePlayer):
    """Player against itself, all players' snapshots, and those that it may have forgotten to beat."""

    category = "main_player"
    config = dict(
        one_phase_step=10,
        branch_probs=dict(
            pfsp=0.5,
            sp=0.35,
            # Probability of a snapshot that the player used to beat and now loses to.
            veri=0.15,
        ),
        strong_win_rate=0.7,
    )

    def _choose_veri(self, players: Sequence[Player], rng: np.random.Generator) -> Player:
        """Play a snapshot that it used to beat and now loses to; else the newest self, as in the paper."""
        past = _historical(players)
        lost = [each for each in past if self._payoff.win_rate(self.player_id, each.player_id) < 0.3]
        return self._draw(lost, rng) if lost else self


@PLAYER_REGISTRY.register("main_exploiter")
class MainExploiter(ActivePlayer):
    """Player that looks for the weaknesses of main players; it starts over after each snapshot."""

    category = "main_exploiter"
    config = dict(
        one_phase_step=10,
        branch_probs=dict(
            # Probability of a main player.
            main_players=1.0,
        ),
        strong_win_rate=0.7,
        # Win rate against a main player below which its snapshots are played first.
        min_valid_win_rate=0.2,
    )

    def is_to_reset(self, rng: np.random.Generator) -> bool:
        return True

    def _rivals(self, players: Sequence[Player]) -> Sequence[Player]:
        return [each for each in players if isinstance(each, MainPlayer)]

    def _choose_main_players(self, players: Sequence[Player], rng: np.random.Generator) -> Player:
        mains = self._rivals(players)
        if not mains:
            return self
        main = mains[int(rng.integers(len(mains)))]
        if self._payoff.win_rate(self.player_id, main.player_id) >= self._cfg["min_valid_win_rate"]:
            return main
        past = [each for each in _historical(players) if each.parent_id == main.player_id]
        return self._draw(past, rng, "variance") if past else main


@PLAYER_REGISTRY.register("league_exploiter")
class LeagueExploiter(ActivePlayer):
    """Player that looks for the weaknesses of the whole league; it starts over after some of its snapshots."""

    category = "league_exploiter"
    config = dict(
        one_phase_step=10,
        branch_probs=dict(pfsp=1.0),
        strong_win_rate=0.7,
        # Probability that the player begins from its first weights again after a snapshot.
        mutate_prob=0.25,
    )

    def is_to_reset(self, rng: np.random.Generator) -> bool:
        return bool(rng.random() < self._cfg["mutate_prob"])


def _historical(players: Sequence[Player]) -> list[HistoricalPlayer]:
    return [each for each in players if isinstance(each, HistoricalPlayer)]


def pfsp(win_rates: Sequence[float] | Array, weighting: str = "squared") -> Array:
    """Return the probability [N] of each opponent, given our win rates [N] against them.

    'squared' is (1 - p)^2, which prefers those we lose to; 'variance' is p (1 - p), which prefers our equals. Where
    every weight is 0 (we beat every player, always) all are as likely. Raises ConfigError for another weighting, for no
    opponents, and for invalid rates.
    """
    rates = np.asarray(win_rates, np.float64)
    if rates.ndim != 1 or not len(rates) or not ((rates >= 0.0) & (rates <= 1.0)).all():
        raise ConfigError(f"pfsp takes win rates from 0 to 1, at least one, got {win_rates!r:.80}.")
    if weighting == "squared":
        weights = (1.0 - rates) ** 2
    elif weighting == "variance":
        weights = rates * (1.0 - rates)
    else:
        raise ConfigError(f"pfsp weighting is {weighting!r}; expected 'squared' or 'variance'.")
    total = weights.sum()
    # Below this a division could overflow, and the weights are noise.
    if total < 1e-12:
        return np.full(len(rates), 1.0 / len(rates))
    return np.asarray(weights / total)
