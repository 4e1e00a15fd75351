"""Leagues: the next games of their players, snapshots, and the strength of each player."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np

from ding_like.config.tree import deep_merge
from ding_like.errors import ConfigError, SchemaError
from ding_like.types import Array, Config, State
from ding_like.utils.bounds import FROM_0, FROM_1, SHARE_ABOVE_0, Bounds, Configurable
from ding_like.utils.files import atomic_write
from ding_like.utils.registries import LEAGUE_REGISTRY, PLAYER_REGISTRY, pip_line
from ding_like.utils.seeding import rng_state, set_rng_state

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

    def beats_all(self, home: str, players: Sequence[Player], rate: float) -> bool:
        """Return whether home wins more often than `rate` against each of some players, at least one."""
        return bool(self[home, [each.player_id for each in players]].min() > rate)

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


@dataclass(eq=False)
class Player(Configurable):
    """Player of a league."""

    player_id: str
    checkpoint_path: str = field(kw_only=True)
    total_agent_step: int = field(default=0, kw_only=True)

    is_active: ClassVar[bool] = False

    def state_dict(self) -> State:
        """Return plain data, from which the league recreates the player."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


@PLAYER_REGISTRY.register("historical_player")
@dataclass(eq=False)
class HistoricalPlayer(Player):
    """Snapshot of an active player, which does not learn."""

    parent_id: str = field(kw_only=True)


class ActivePlayer(Player):
    """Player that learns, against opponents that a sub-class chooses by drawing one of its `branch_probs`."""

    is_active: ClassVar[bool] = True
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
        rivals = self._rivals(players)
        return bool(rivals) and self._payoff.beats_all(self.player_id, rivals, self._cfg["strong_win_rate"])

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


def copy_file(source: str, target: str) -> None:
    """Copy a file whole or not at all."""
    with atomic_write(target) as file:
        file.write(Path(source).read_bytes())


class BaseLeague(Configurable):
    """Active players and their snapshots, their payoff and ratings, and the choice of the next games.

    `save_checkpoint(source, target)` keeps the weights of a snapshot; by default files are copied. `eval_opponent` is
    the opponent of evaluations.
    """

    config: dict[str, Any] = dict(
        type="base",
        # Folder of the snapshots.
        path_policy="league",
        # Number of learning players, by kind: naive_sp_player, main_player, main_exploiter, league_exploiter; {}: one
        # naive_sp_player.
        active_players=dict(),
        # Begin with a snapshot of the first weights.
        use_initial_snapshot=True,
        payoff=BattleSharedPayoff.config,
        # Settings of players, by kind; the defaults are in player.py.
        naive_sp_player=dict(),
        main_player=dict(),
        main_exploiter=dict(),
        league_exploiter=dict(),
        # Games of a pair before the next opponent is drawn.
        games_per_job=32,
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "games_per_job": FROM_1,
        "payoff.decay": SHARE_ABOVE_0,
        "payoff.min_win_rate_games": FROM_0,
    }
    without_effect: ClassVar[Mapping[str, str]] = {"payoff.type": "there is one kind of payoff, of battles"}
    config_free = ("active_players", "naive_sp_player", "main_player", "main_exploiter", "league_exploiter")

    def __init__(
        self,
        cfg: Config | None = None,
        *,
        rng: np.random.Generator | None = None,
        save_checkpoint: Callable[[str, str], None] = copy_file,
        eval_opponent: str = "random",
    ) -> None:
        """Make the active players. Raises ConfigError for a kind that there is not, or for none at all."""
        given = cfg or {}
        self._cfg = {**deep_merge(self.config, given)}
        self._cfg["active_players"] = dict(given.get("active_players") or {"naive_sp_player": 1})
        self._rng = np.random.default_rng(0) if rng is None else rng
        self._save_checkpoint = save_checkpoint
        self._eval_opponent = eval_opponent
        self.games_per_job = int(self._cfg["games_per_job"])
        self.payoff = BattleSharedPayoff(self._cfg["payoff"])
        self.ratings = Ratings()
        self.active_players: list[ActivePlayer] = []
        self.historical_players: list[HistoricalPlayer] = []
        self._finished_games: dict[str, int] = {}
        for category, number in self._cfg["active_players"].items():
            cls = PLAYER_REGISTRY.get(category)
            if not issubclass(cls, ActivePlayer):
                raise ConfigError(f"league.active_players names {category}, which does not learn.")
            for player_id in (f"{category}_{index}" for index in range(number)):
                path = f"{self._cfg['path_policy']}/{player_id}.pth.tar"
                player = cls(given.get(category) or {}, player_id, checkpoint_path=path, payoff=self.payoff)
                self.active_players.append(player)
                self.ratings.add(player_id)
        if not self.active_players:
            raise ConfigError("league.active_players is empty: at least one player must learn.")

    @property
    def players(self) -> Sequence[Player]:
        """Return all players, those that learn first."""
        return [*self.active_players, *self.historical_players]

    @property
    def active_players_ids(self) -> list[str]:
        return [each.player_id for each in self.active_players]

    def player(self, player_id: str) -> Player:
        """Return a player by its id. Raises ConfigError if there is none."""
        for each in self.players:
            if each.player_id == player_id:
                return each
        raise ConfigError(f"the league has no player {player_id!r}; it has {[each.player_id for each in self.players]}")

    def begin(self) -> None:
        """Take the first snapshots, when the weights of the active players are in their checkpoints."""
        if self._cfg["use_initial_snapshot"] and not self.historical_players:
            for player in self.active_players:
                self._snapshot(player)

    def get_job_info(self, player_id: str | None = None, eval_flag: bool = False) -> Job:
        """Return which games a player (None: any that learns) is to play next.

        `player_id` [2] are the player and its opponent, with `checkpoint_path` [2] and `player_active_flag` [2]: who
        of them learns. With `eval_flag` the opponent is not of the league, and `eval_opponent` names it.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say who plays whom")

    def judge_snapshot(self, player_id: str, force: bool = False) -> HistoricalPlayer | None:
        """Take a snapshot of a player that is trained enough (or `force`) and return it; else return None."""
        player = self._active(player_id)
        if not force and not player.is_trained_enough(self.players):
            return None
        return self._snapshot(player)

    def is_to_reset(self, player_id: str) -> bool:
        """Return, after a snapshot, whether a player begins from its first weights again."""
        return self._active(player_id).is_to_reset(self._rng)

    def _snapshot(self, player: ActivePlayer) -> HistoricalPlayer:
        number = sum(each.parent_id == player.player_id for each in self.historical_players)
        name = f"{player.player_id}_{number}_historical"
        past = HistoricalPlayer(
            name,
            parent_id=player.player_id,
            checkpoint_path=f"{self._cfg['path_policy']}/{name}.pth.tar",
            total_agent_step=player.total_agent_step,
        )
        self._save_checkpoint(player.checkpoint_path, past.checkpoint_path)
        self.historical_players.append(past)
        self.ratings.add(name, like=player.player_id)
        player.last_snapshot_step = player.total_agent_step
        return past

    def update_active_player(self, player_info: Job) -> None:
        """Take news of an active player: `player_id` and `train_iteration`, its steps so far."""
        self._active(player_info["player_id"]).total_agent_step = int(player_info["train_iteration"])

    def finish_job(self, job_info: Job) -> None:
        """Count the games of a job: `player_id` [home, away] and `result`, home's, as BattleSharedPayoff takes it."""
        home, away = (self.player(each).player_id for each in job_info["player_id"])
        self.payoff.update(job_info)
        self._finished_games[home] = self._finished_games.get(home, 0) + len(job_info["result"])
        if home != away:
            for result in job_info["result"]:
                self.ratings.update(home, away, RESULTS[result])

    def table(self) -> list[dict[str, Any]]:
        """Return a line for each player: its id, Elo, skill, and mean win rate against the snapshots."""
        past, lines = [each.player_id for each in self.historical_players], []
        for name in [each.player_id for each in self.players]:
            others = [other for other in past if other != name]
            mean, deviation = self.ratings.skill(name)
            rate = float(self.payoff[name, others].mean()) if others else None
            line = {"player": name, "elo": self.ratings.elo[name], "skill": mean, "skill_deviation": deviation}
            lines.append({**line, "win_rate": rate})
        return lines

    def _active(self, player_id: str) -> ActivePlayer:
        player = self.player(player_id)
        if not isinstance(player, ActivePlayer):
            raise ConfigError(f"{player_id} is a snapshot and does not learn.")
        return player

    def state_dict(self) -> State:
        """Return plain data: players, payoff, ratings, the generator."""
        return {
            "active": [each.state_dict() for each in self.active_players],
            "historical": [each.state_dict() for each in self.historical_players],
            "payoff": self.payoff.state_dict(),
            "ratings": self.ratings.state_dict(),
            "finished_games": dict(self._finished_games),
            "rng": rng_state(self._rng),
        }

    def load_state_dict(self, state: State) -> None:
        """Take over what `state_dict` returned. Raises ConfigError if other players learn now."""
        saved = {each["player_id"]: each for each in state["active"]}
        if set(saved) != set(self.active_players_ids):
            raise ConfigError(f"the saved league has players {sorted(saved)}, this one {self.active_players_ids}.")
        for player in self.active_players:
            player.load_state_dict(saved[player.player_id])
        self.historical_players = [HistoricalPlayer(**each) for each in state["historical"]]
        self.payoff.load_state_dict(state["payoff"])
        self.ratings.load_state_dict(state["ratings"])
        self._finished_games = dict(state["finished_games"])
        set_rng_state(self._rng, state["rng"])


@LEAGUE_REGISTRY.register("one_vs_one")
class OneVsOneLeague(BaseLeague):
    """League of games between two players."""

    config: dict[str, Any] = {**BaseLeague.config, "type": "one_vs_one"}

    def get_job_info(self, player_id: str | None = None, eval_flag: bool = False) -> Job:
        if player_id is None:
            player_id = self.active_players_ids[int(self._rng.integers(len(self.active_players)))]
        player = self._active(player_id)
        job: dict[str, object] = {"agent_num": 2, "launch_player": player_id}
        pair: list[Player] = [player]
        if eval_flag:
            job.update(agent_num=1, eval_opponent=self._eval_opponent)
        else:
            pair.append(player.opponent(self.players, self._rng))
        return {
            **job,
            "player_id": [each.player_id for each in pair],
            "checkpoint_path": [each.checkpoint_path for each in pair],
            "player_active_flag": [each.is_active for each in pair],
        }


def create_league(cfg: Config, **kwargs: object) -> BaseLeague:
    """Build the league that `cfg.type` (or DI-engine's `league_type`) names; raises RegistryError if it is unknown."""
    name = cfg.get("league_type") or cfg.get("type") or "one_vs_one"
    league: BaseLeague = LEAGUE_REGISTRY.get(name, cfg.get("import_names") or ())(cfg, **kwargs)
    return league
