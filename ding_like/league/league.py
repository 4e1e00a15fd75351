"""Leagues: the next games of their players, snapshots, and the strength of each player."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ding_like.config.tree import deep_merge
from ding_like.errors import ConfigError
from ding_like.league.payoff import RESULTS, BattleSharedPayoff, Job, Ratings
from ding_like.league.player import ActivePlayer, HistoricalPlayer, Player
from ding_like.types import Config, State
from ding_like.utils.bounds import FROM_0, FROM_1, SHARE_ABOVE_0, Bounds, Configurable
from ding_like.utils.files import atomic_write
from ding_like.utils.registries import LEAGUE_REGISTRY, PLAYER_REGISTRY
from ding_like.utils.seeding import rng_state, set_rng_state


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
            for index in range(number):
                self._add_active(cls, f"{category}_{index}", given.get(category) or {})
        if not self.active_players:
            raise ConfigError("league.active_players is empty: at least one player must learn.")

    def _add_active(self, cls: type[ActivePlayer], player_id: str, cfg: Config) -> None:
        path = f"{self._cfg['path_policy']}/{player_id}.pth.tar"
        self.active_players.append(cls(cfg, player_id, checkpoint_path=path, payoff=self.payoff))
        self.ratings.add(player_id)

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
