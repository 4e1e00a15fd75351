"""Collect for a league in a parallel run: one policy learns, an opponent plays the other side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ding_like.comm.rest.messages import PolicyVersion
from ding_like.envs.manager.versus import VersusManager
from ding_like.pipeline.parallel.zergling import Order, ZerglingParallelCollector
from ding_like.pipeline.self_play import versus
from ding_like.types import EnvManager
from ding_like.utils.registries import PARALLEL_COLLECTOR_REGISTRY


@PARALLEL_COLLECTOR_REGISTRY.register("marine")
class MarineParallelCollector(ZerglingParallelCollector):
    """Let one or two policies act: the one that learns, and its opponent of the task.

    A task names the opponent's weights in `opponent` (None: the newest of the one that learns) and how many `games` it
    is for. Its result has `game_result`, the games that ended: 1 won, 0 drawn, -1 lost.
    """

    config: dict[str, Any] = {**ZerglingParallelCollector.config, "type": "marine"}

    _versus: VersusManager

    def _launch_collect(self) -> EnvManager:
        self._versus = versus(super()._launch_collect(), seed=self._seed, name="collector")
        return self._versus

    def _collect(self, task_info: Mapping[str, Any]) -> None:
        self._game_result: list[int] = []
        self._use_opponent(task_info)
        self._versus.take_results()  # of a task that was broken off
        super()._collect(task_info)
        self._finish_info = {**self._finish_info, "game_result": self._game_result}

    def _use_opponent(self, task_info: Mapping[str, Any]) -> None:
        version = task_info.get("opponent")
        if version is None:
            self._versus.use_opponent(self._opponents.newest_self())
        else:
            weights = self.get_weights(task_info["policy_id"], PolicyVersion(**version))
            self._versus.use_opponent(self._opponents.past_self(weights["model"]))

    def _collect_segment(self, order: Order) -> Order:
        following = super()._collect_segment(order)
        self._game_result += self._versus.take_results()
        return following

    def _is_done(self, task_info: Mapping[str, Any]) -> bool:
        return len(self._game_result) >= int(task_info.get("games", 1))
