"""Command a parallel run whose one learning player plays in a league."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ding_like.errors import ConfigError, SchemaError
from ding_like.types import State
from ding_like.utils.registries import COMMANDER_REGISTRY
from ding_like.worker.commander.naive import NaiveCommander, NewTask, RunView

_MAX_GAMES = 10_000  # in one result: rating them takes half a second


@COMMANDER_REGISTRY.register("one_vs_one")
class OneVsOneCommander(NaiveCommander):
    """Give every collect task an opponent, and record the games' results.

    A collect task ends after the league's `games_per_job` games. Snapshots are published versions of the weights,
    whose files are kept. The run ends as the naive commander's does, or when the player beats the hardest snapshot
    with more than `strong_win_rate` at `stop_snapshots` snapshots.
    """

    config = {
        **NaiveCommander.config,
        "type": "one_vs_one",
        "collector_task_space": 2,
        # Win rate against every snapshot that ends the run.
        "strong_win_rate": 0.7,
        # Number of snapshots from which win rates can end the run.
        "stop_snapshots": float("inf"),
    }

    def __init__(self, cfg: Mapping[str, Any], *, league: Any = None, **settings: Any) -> None:
        """Take settings as the naive commander does. `league` has one learning player, and keeps no files itself.

        Raises ConfigError without a league.
        """
        super().__init__(cfg, **settings)
        if league is None:
            raise ConfigError("commander 'one_vs_one' needs a league: create_config.league=dict(type='one_vs_one').")
        self._league = league
        self._player: str = league.active_players_ids[0]
        self._newest: dict[str, Any] | None = None
        self._weights: dict[str, dict[str, Any]] = {}  # of snapshots, by their names: fields of PolicyVersion

    def _collect_tasks(self, run: RunView, number: int) -> list[NewTask]:
        self._newest = run.policy_of("policy") or self._newest
        if self._newest is None:
            return []  # no one can play yet
        if not self._league.historical_players:
            self._league.begin()
            self._keep_new_snapshots()
        return [NewTask("collect", self._job()) for _ in range(number)]

    def _job(self) -> dict[str, Any]:
        job = self._league.get_job_info(self._player)
        opponent = job["player_id"][1]
        return {
            **job,
            "opponent": self._weights.get(opponent),  # None: the newest self
            "policy_update_flag": [True, opponent == self._player],
            "games": self._league.games_per_job,
        }

    def finished(
        self,
        kind: str,
        result: Mapping[str, Any],
        *,
        task_cfg: Mapping[str, Any] | None = None,
        newest: dict[str, Any] | None = None,
    ) -> bool:
        if kind == "collect":
            self._newest = newest or self._newest
            self._count(result.get("game_result"), (task_cfg or {}).get("player_id"))
        return super().finished(kind, result, task_cfg=task_cfg, newest=newest)

    def _count(self, games: Any, players: Any) -> None:
        """Take the results of a task's games. Raises SchemaError for malformed ones."""
        if not isinstance(games, list) or len(games) > _MAX_GAMES or any(each not in (-1, 0, 1) for each in games):
            raise SchemaError(f"the games of a task ended with {games!r:.80}; expected a list of 1, 0 and -1.")
        if players is None:
            return
        self._league.finish_job({"player_id": players, "result": games})
        if self._newest is not None:
            self._league.update_active_player({"player_id": self._player, "train_iteration": self._newest["version"]})
            if self._league.judge_snapshot(self._player) is not None:
                self._keep_new_snapshots()
        if self._is_strong_enough():  # what many games say needs no confirmation by an evaluation
            self.stop, self._unconfirmed = True, None

    def _keep_new_snapshots(self) -> None:
        assert self._newest is not None, "a snapshot is of published weights"
        for player in self._league.historical_players:
            self._weights.setdefault(player.player_id, self._newest)

    def _is_strong_enough(self) -> bool:
        past = [each.player_id for each in self._league.historical_players]
        if len(past) < self._cfg["stop_snapshots"]:
            return False
        return bool(self._league.payoff[self._player, past].min() > self._cfg["strong_win_rate"])

    @property
    def kept_policies(self) -> list[dict[str, Any] | None]:
        return [*super().kept_policies, *self._weights.values()]

    def table(self) -> list[dict[str, Any]]:
        """Return the league's table."""
        found: list[dict[str, Any]] = self._league.table()
        return found

    def state_dict(self) -> State:
        return {**super().state_dict(), "league": self._league.state_dict(), "weights": dict(self._weights)}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._league.load_state_dict(state["league"])
        self._weights = dict(state["weights"])
