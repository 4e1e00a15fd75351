"""Collect for a league in a parallel run: one policy learns, an opponent plays the other side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ding_like.comm.channels import Segment
from ding_like.comm.flat_state import unflatten_state
from ding_like.envs.manager.versus import VersusManager
from ding_like.pipeline.parallel.zergling import ZerglingParallelCollector
from ding_like.pipeline.self_play import versus
from ding_like.types import EnvManager
from ding_like.utils.registries import PARALLEL_COLLECTOR_REGISTRY


@PARALLEL_COLLECTOR_REGISTRY.register("marine")
class MarineParallelCollector(ZerglingParallelCollector):
    """Parallel collector of games: the policy that learns, and its opponent of the task.

    A task brings the opponent's Weights in `opponent` (None: the newest of the one that learns) and says how many
    `games` it is for. Its result has `game_result`, the games that ended: 1 won, 0 drawn, -1 lost.
    """

    config: dict[str, Any] = {**ZerglingParallelCollector.config, "type": "marine"}

    _versus: VersusManager

    def _as_seen(self, envs: EnvManager) -> EnvManager:
        self._versus = versus(envs, seed=self._seed, name="collector")
        return self._versus

    def _collect(self, task_info: Mapping[str, Any]) -> dict[str, Any]:
        self._game_result: list[int] = []
        opponent = task_info.get("opponent")
        if opponent is None:
            self._versus.use_opponent(self._end.opponents.newest_self())
        else:
            self._versus.use_opponent(self._end.opponents.past_self(unflatten_state(opponent.state)["model"]))
        self._versus.take_results()  # of a task that was broken off
        return {**super()._collect(task_info), "game_result": self._game_result}

    def _iter_after_hook(self, segment: Segment) -> None:
        super()._iter_after_hook(segment)
        self._game_result += self._versus.take_results()

    def _is_done(self, task_info: Mapping[str, Any]) -> bool:
        return len(self._game_result) >= int(task_info.get("games", 1))
