"""Collect by one of four patterns: here or in workers, in rounds that all take part in or each at its own pace."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ding_like.pipeline.build.collect_end import segment_of

from ding_like.comm.channels import Order
from ding_like.comm.workers.calls import WorkerCalls
from ding_like.comm.workers.host import WorkerHandle
from ding_like.comm.workers.pool import WorkerPool
from ding_like.pipeline.roles.collect import CollectRole
from ding_like.pipeline.roles.collector_thread import CollectorThread
from ding_like.pipeline.roles.intake import Collected, Intake, shares
from ding_like.types import Setting

_LOOK_S = 1.0  # between two looks at whether the run is to end
_LEAVE_S = 5.0  # that a round may still take then


class Collection(Protocol):
    """Be how a scheme collects, chosen once."""

    @property
    def setting(self) -> Setting: ...

    def begin(self, random_rows: int) -> None:
        """Begin a run: collect rows of random actions, which allow no updates."""

    def collect(self, order: Order) -> Order:
        """Put the rows of a turn and return the next order. Raises CommError or TrainingError for lost workers."""

    def close(self) -> None: ...


class CentralCollection:
    """Collect in this process, with the learner's own policy; `random` fills the buffer with random actions."""

    def __init__(self, role: CollectRole, *, random: Callable[[], None]) -> None:
        self._role, self._random = role, random
        self.collect = role.collect

    @property
    def setting(self) -> Setting:
        return self._role.setting

    def begin(self, random_rows: int) -> None:
        if random_rows > 0:
            self._random()

    def close(self) -> None:
        """Do nothing: the collector is its owner's."""


@dataclass(frozen=True)
class Remote:
    """Hold what collecting in workers needs of a run's driver.

    `publish` sends the learner's weights out, and waits for so many seconds until all have them, or not (None).
    """

    pool: WorkerPool
    calls: WorkerCalls
    intake: Intake
    publish: Callable[[float | None], object]
    is_leaving: Callable[[], bool]
    fraction_workers: float = 1.0
    publish_timeout_s: float = 60.0
    clock: Callable[[], float] = time.monotonic


class SynchronousCollection:
    """Collect in rounds: each worker its share of the rows, with the newest weights; ordered by place.

    Once `fraction_workers` of them have finished, the others are told to stop. The share of a worker that is lost goes
    to the one that takes its place, or the round goes on with those present.
    """

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._round_id = 0

    @property
    def setting(self) -> Setting:
        return self._remote.intake.report.setting

    def begin(self, random_rows: int) -> None:
        self._remote.publish(self._remote.publish_timeout_s)
        while random_rows > 0 and not self._remote.is_leaving():
            # Collectors act at random at a run's first env steps.
            random_rows -= self._remote.intake.put_random(self._round(random_rows, env_step=0, fraction=1.0))

    def collect(self, order: Order) -> Order:
        remote = self._remote
        remote.publish(remote.publish_timeout_s)
        began_s = remote.clock()
        parts = self._round(order.rows, env_step=order.env_step, fraction=remote.fraction_workers)
        remote.intake.report.note_round(remote.clock() - began_s)
        return remote.intake.put(parts, order)

    def close(self) -> None:
        """Tell those who still collect that it is enough; the pool is its owner's."""
        self._remote.calls.control("stop_collecting", self._round_id)

    def _present(self) -> list[WorkerHandle]:
        pool = self._remote.pool
        pool.check()
        return pool.workers or (pool.workers if pool.wait_ready(timeout_s=_LOOK_S) else [])

    def _give(self, worker: WorkerHandle, *, place: int, rows: int, env_step: int) -> None:
        order = Order(False, rows, env_step, self._remote.intake.newest())
        listen_to = (("sync", self._round_id),)
        self._remote.calls.begin(worker, "collect_data", listen_to=listen_to, order=order, place=place, rows=rows)

    def _round(self, rows: int, *, env_step: int, fraction: float) -> list[Collected]:
        """Return what the workers of a round return, by place; fewer parts where workers are lost."""
        calls, workers = self._remote.calls, self._present()
        self._round_id += 1
        for place, (worker, share) in enumerate(zip(workers, shares(rows, len(workers)), strict=True)):
            if share:
                self._give(worker, place=place, rows=share, env_step=env_step)
        needed = math.ceil(fraction * len(calls.tasks) - 1e-9)  # 0.07 * 100 is a little over 7
        parts: dict[int, Collected] = {}
        is_told, end_s = False, math.inf
        while calls.tasks and self._remote.clock() < end_s:
            for back in calls.ready(timeout_s=_LOOK_S):
                place = back.task.place
                if not back.is_lost:
                    parts[place] = self._received(back.task.worker, back.value)
                elif back.replacement is not None and not is_told:
                    self._give(back.replacement, place=place, rows=back.task.rows, env_step=env_step)
            if self._remote.is_leaving():
                needed, end_s = 0, min(end_s, self._remote.clock() + _LEAVE_S)
            if not is_told and len(parts) >= needed:
                is_told = True
                calls.control("stop_collecting", self._round_id)
        calls.forget()
        return [parts[place] for place in sorted(parts)]

    def _received(self, worker: WorkerHandle, value: Any) -> Collected:
        return Collected(worker.name, segment_of(*value), self._remote.clock())


class AsynchronousCollection(SynchronousCollection):
    """Keep a call of `segment_rows` rows under way in each worker, each with the newest weights; put what comes first.

    A thread gives the calls, ahead of the learner by `max_queue_size` segments; the learner waits for no one worker.
    """

    def __init__(self, remote: Remote, *, segment_rows: int, max_queue_size: int) -> None:
        super().__init__(remote)
        self._segment_rows = segment_rows
        self._came: deque[Collected] = deque()
        self._thread = CollectorThread(
            self._first,
            col_communication="asynchronous",
            broadcast=lambda: remote.publish(None),
            max_queue_size=max_queue_size,
        )

    def collect(self, order: Order) -> Order:
        collected = self._thread.step(timeout_s=_LOOK_S)
        while collected is None and not self._remote.is_leaving():
            collected = self._thread.step(timeout_s=_LOOK_S)
        return self._remote.intake.put([] if collected is None else [collected], order)

    def close(self) -> None:
        self._thread.stopped = True
        super().close()
        self._thread.stop()

    def _first(self) -> Collected | None:
        """Give a call to each worker that has none, and return what came first; None if nothing did in time."""
        calls = self._remote.calls
        for place, worker in enumerate(self._present()):
            if worker.name not in calls.tasks:
                self._round_id += 1
                self._give(worker, place=place, rows=self._segment_rows, env_step=self._remote.intake.env_step)
        if not self._came:
            came = [back for back in calls.ready(timeout_s=_LOOK_S) if not back.is_lost]
            self._came.extend(self._received(back.task.worker, back.value) for back in came)
        return self._came.popleft() if self._came else None
