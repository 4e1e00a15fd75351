"""Answer a coordinator's tasks with made-up rows: a collector for tests and for load, without envs or a policy."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.agent import Slave, TaskHandle
from ding_like.comm.rest.service import CoordinatorService
from ding_like.data.segment_file import SegmentMeta, write_segment
from ding_like.types import Array
from ding_like.utils.seeding import make_rng

_WAIT_S = 1.0  # for credit, before it is asked again


class NaiveCollector(Slave):
    """Collector that sends `count` segments of `rows` random rows, then finishes the task.

    An eval task is answered with returns of 0. Rows are what DQN collects in CartPole.
    """

    def __init__(
        self,
        coordinator: CoordinatorService,
        *,
        folder: str | os.PathLike[str],
        rows: int = 16,
        count: int = 20,
        seed: int = 0,
        incarnation: str | None = None,
    ) -> None:
        super().__init__(coordinator, "collector", incarnation=incarnation)
        self._folder = Path(folder)
        self._rows = rows
        self._count = count
        self._rng = make_rng(seed, "naive_collector")
        self._num_segments = 0

    def work(self) -> None:
        """Do tasks until the run is over."""
        self.run(self._process_task)

    def _process_task(self, task: m.Task, handle: TaskHandle) -> dict[str, Any]:
        if task.kind == "eval":
            version = 0 if task.policy is None else task.policy.version
            num = int(task.cfg["n_episode"])
            return {"returns": [0.0] * num, "lengths": [1] * num, "version": version, "duration_s": 0.0}
        sent, finish = 0, False
        while sent < self._count and not (finish or handle.finish_asked):
            order: Any = self._coordinator.task_info(
                self.worker_id, task.task_id, m.TaskInfo(task.attempt, {}, wait_s=_WAIT_S)
            )
            if order.credit > 0 and not order.finish:
                order = self._send(task)
                sent += 1
            finish = order.finish
        return {"segments": sent, "collector_done": sent == self._count}

    def _send(self, task: m.Task) -> m.SendDataReply:
        number = self._num_segments
        self._num_segments += 1
        meta = SegmentMeta(task.task_id, task.attempt, self.worker_id, number, 0, self._rows)
        written = write_segment(self._folder, f"{self.worker_id}.{number:08d}", self._get_timestep(), meta)
        info = m.SegmentInfo(**written._asdict(), policy_version=0, env_steps=self._rows)
        return self._coordinator.send_data(self.worker_id, task.task_id, m.SendData(task.attempt, (info,)))

    def _get_timestep(self) -> Mapping[str, Array]:
        """Return the columns of one segment: those of DQN's single steps."""
        rng, rows = self._rng, self._rows
        numbers = {name: np.zeros(rows, np.int64) for name in ("lane", "env_id", "episode_id", "policy_version")}
        return {
            "obs": rng.standard_normal((rows, 4), np.float32),
            "action": rng.integers(0, 2, rows),
            **numbers,
            "step": np.arange(rows),
            "next_obs": rng.standard_normal((rows, 4), np.float32),
            "reward": np.ones(rows, np.float32),
            "terminated": np.zeros(rows, bool),
            "truncated": np.zeros(rows, bool),
        }
