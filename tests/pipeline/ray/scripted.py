"""Workers whose calls take a scripted time on a clock that only waiting moves: no threads, no sleeps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ding_like.comm.channels import Version
from ding_like.comm.local import LocalRows
from ding_like.comm.workers.calls import WorkerCalls
from ding_like.comm.workers.host import WorkerLostError
from ding_like.data.batch import TransitionBatch
from ding_like.errors import TrainingError
from ding_like.pipeline.roles.collect_rounds import Remote
from ding_like.pipeline.roles.intake import Intake
from ding_like.pipeline.roles.remote_collectors import RemoteCollectors
from ding_like.pipeline.update_ratio import UpdateRatio
from tests.support import Clock


class ScriptedCall:
    def __init__(self, worker: ScriptedWorker, order: Any, round_id: int) -> None:
        self.worker, self.order, self.round_id = worker, order, round_id
        self.begun_s = worker.clock.now
        self.rows = order.rows
        self.done_s = self.begun_s + worker.seconds_per_row * order.rows
        if worker.dies_after_s is not None:
            self.done_s = min(self.done_s, self.begun_s + worker.dies_after_s)
        if worker.hangs:
            self.done_s = math.inf
        self.version = worker.version

    def stop(self, round_id: int) -> None:
        """Hand over what is collected by now, as a collector does that is told to stop."""
        if round_id >= self.round_id and self.worker.clock.now < self.done_s < math.inf:
            taken = int((self.worker.clock.now - self.begun_s) / self.worker.seconds_per_row)
            self.rows, self.done_s = min(self.rows, max(taken, 1)), self.worker.clock.now

    def result(self) -> Any:
        worker = self.worker
        if worker.dies_after_s is not None:
            raise WorkerLostError(f"{worker.name} was killed by signal 9.")
        if worker.error is not None:
            raise worker.error
        first, worker.made = worker.made, worker.made + self.rows
        data = {
            "row": np.arange(first, first + self.rows) + 1000 * worker.index,
            "reward": np.zeros(self.rows, np.float32),
        }
        info = {
            "Episodes": {"TrainReward": 10.0 * worker.index, "TrainLength": 5.0},
            "Time": {"DataCollection": self.done_s - self.begun_s},
            "NumberSamples": self.rows,
            "EnvSteps": self.rows + worker.dropped_steps,
            "Version": tuple(self.version),
            "Observed": {},
            "Setting": {"eps": 0.5},
        }
        return data, info


class ScriptedWorker:
    """Worker that takes `seconds_per_row` for each row; its rows are numbered from 1000 * index."""

    def __init__(self, index: int, clock: Clock, *, seconds_per_row: float = 0.01) -> None:
        self.index, self.name, self.clock = index, f"collector{index}", clock
        self.seconds_per_row = seconds_per_row
        self.dies_after_s: float | None = None
        self.hangs = False
        self.is_deaf = False  # True: it takes no weights
        self.error: Exception | None = None
        self.version = Version(1, 0)
        self.dropped_steps = 0
        self.made = 0
        self.calls: list[ScriptedCall] = []
        self.told: list[int] = []

    def call(self, method: str, *, listen_to: Any, order: Any) -> ScriptedCall:
        assert method == "collect_data"
        [(keyword, round_id)] = listen_to
        assert keyword == "sync"
        self.calls.append(ScriptedCall(self, order, round_id))
        return self.calls[-1]

    def control(self, method: str, *args: Any) -> None:
        assert method == "stop_collecting"
        self.told.append(args[0])
        for call in self.calls:
            call.stop(args[0])


class ScriptedHost:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.error: Exception | None = None

    def wait(self, calls: Any, *, timeout_s: float) -> list[Any]:
        if self.error is not None:
            raise self.error
        end_s = self._clock.now + timeout_s
        self._clock.now = max(self._clock.now, min([end_s, *(call.done_s for call in calls)]))
        return [call for call in calls if call.done_s <= self._clock.now]


class ScriptedPool:
    """Pool in which the next worker that stands by, if any, takes the place of a lost one."""

    def __init__(self, workers: list[ScriptedWorker], standbys: list[ScriptedWorker]) -> None:
        self.workers, self.standbys = list(workers), list(standbys)
        self.losses: list[tuple[str, str, int]] = []

    def check(self) -> None:
        if not self.workers:
            raise TrainingError("no worker is left, and none may be started.")

    def wait_ready(self, *, timeout_s: float, standbys: bool = True) -> bool:
        return bool(self.workers)

    def lost(self, worker: Any, *, how: str, rows_lost: int = 0, detail: str = "", wait_s: float | None = None) -> Any:
        self.losses.append((worker.name, how, rows_lost))
        place = self.workers.index(worker)
        if not self.standbys:
            del self.workers[place]
            self.check()
            return None
        self.workers[place] = self.standbys.pop(0)
        return self.workers[place]


class KeptRows:
    """Store that keeps the numbers of all rows in the order in which they came."""

    def __init__(self) -> None:
        self.pushed: list[list[int]] = []

    def push(self, data: Any, cur_collector_envstep: int) -> None:
        self.pushed.append([int(row) for row in data["row"]])

    def sample(self, batch_size: int, cur_learner_iter: int) -> TransitionBatch:
        return TransitionBatch({"reward": np.zeros(batch_size)})

    def update(self, info: Any) -> None: ...

    def count(self) -> int:
        return sum(map(len, self.pushed))

    @property
    def rows(self) -> list[int]:
        return [row for each in self.pushed for row in each]


class Scripted:
    """Pool of scripted workers, and all that a collection over it needs."""

    def __init__(self, number: int = 2, *, standbys: int = 0, n_sample: int = 8, step_timeout_s: float = 60.0) -> None:
        self.clock = Clock()
        every = [ScriptedWorker(index + 1, self.clock) for index in range(number + standbys)]
        self.workers, self.standbys = every[:number], every[number:]
        self.host = ScriptedHost(self.clock)
        self.pool = ScriptedPool(self.workers, self.standbys)
        self.store = KeptRows()
        self.update = 0
        self.published: list[tuple[int, float | None]] = []
        self.is_leaving = False
        self.are_deaf = False  # True: no worker takes weights
        self.report = RemoteCollectors(clock=self.clock)
        self.rows = LocalRows(
            self.store,
            UpdateRatio.per_rows(1, n_sample),
            segment_rows=n_sample,
            batch_size=4,
            newest=self.newest,
            counts_rows=True,
        )
        pool: Any = self.pool
        host: Any = self.host
        self._calls = WorkerCalls(host, pool, step_timeout_s=step_timeout_s, clock=self.clock)

    def newest(self) -> Version:
        return Version(1, self.update)

    def remote(self, *, fraction_workers: float = 1.0, max_policy_lag: int | None = None, **changes: Any) -> Remote:
        pool: Any = self.pool
        return Remote(
            pool,
            self._calls,
            Intake(self.rows, self.report, newest=self.newest, max_policy_lag=max_policy_lag),
            publish=self._publish,
            is_leaving=lambda: self.is_leaving,
            fraction_workers=fraction_workers,
            clock=self.clock,
            **changes,
        )

    def _publish(self, wait_s: float | None) -> list[Any]:
        self.published.append((self.update, wait_s))
        for worker in [] if self.are_deaf else self.pool.workers:
            worker.version = worker.version if worker.is_deaf else self.newest()
        return [] if wait_s is None else [worker for worker in self.pool.workers if worker.is_deaf]
