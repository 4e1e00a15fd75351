"""Have collectors of a pool collect: in rounds that end early if need be, or one call after another."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ding_like.comm.channels import Order, Version
from ding_like.comm.workers.calls import Returned, WorkerCalls
from ding_like.comm.workers.host import WorkerHandle
from ding_like.comm.workers.pool import WorkerPool
from ding_like.pipeline.build.collect_end import segment_of
from ding_like.pipeline.roles.intake import Collected, Intake, shares

LOOK_S = 1.0  # between two looks at whether the run is to end
_REPLACE_S = 1.0  # that a lost worker's place is waited for: one that stands by takes milliseconds
_NO_WEIGHTS = "did not take the weights"
_LEAVE_S = 5.0  # that a round may still take then


@dataclass(frozen=True)
class Remote:
    """Hold what collecting in workers needs of a run's driver.

    `publish` sends the learner's weights out, waits for so many seconds until all have them, or not (None), and returns
    the workers that do not. Rows of a round must not be collected with weights before `oldest`; None: with any.
    """

    pool: WorkerPool
    calls: WorkerCalls
    intake: Intake
    publish: Callable[[float | None], Sequence[WorkerHandle]]
    is_leaving: Callable[[], bool]
    fraction_workers: float = 1.0
    publish_timeout_s: float = 60.0
    random_share: int = 1_024  # rows of random actions that a worker is asked for at a time, or whole episodes
    least_share: int = 1  # that a worker is asked for at all: of whole episodes one in each of its lanes
    oldest: Callable[[], Version | None] = lambda: None
    clock: Callable[[], float] = time.monotonic


class CollectRounds:
    """Give calls to collectors; each round has a number, by which its collections are stopped and no later ones.

    The share of a worker that is lost goes to the one that takes its place, or the round goes on with those present.
    """

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._round_id = 0
        self._came: deque[Collected] = deque()
        self._stale: set[str] = set()  # workers that acted in this round with weights that were too old

    def _present(self) -> list[WorkerHandle]:
        pool = self._remote.pool
        pool.check()
        return pool.workers or (pool.workers if pool.wait_ready(timeout_s=LOOK_S, standbys=False) else [])

    def _give(self, worker: WorkerHandle, *, place: int, rows: int, env_step: int) -> None:
        order = Order(False, rows, env_step, self._remote.intake.newest())
        listen_to = (("sync", self._round_id),)
        self._remote.calls.begin(worker, "collect_data", listen_to=listen_to, order=order, place=place, rows=rows)

    def collect(self, rows: int, *, env_step: int, fraction: float, most: float = math.inf) -> list[Collected]:
        """Return what the workers of a round return, by place; fewer parts where workers are lost.

        Each is asked for its share of `rows`, for `most` at most, and for the least that it can collect.
        """
        calls, workers = self._remote.calls, self._present()
        self._round_id += 1
        self._stale.clear()
        for place, (worker, share) in enumerate(zip(workers, shares(rows, len(workers)), strict=True)):
            if share:
                asked = max(int(min(share, most)), self._remote.least_share)
                self._give(worker, place=place, rows=asked, env_step=env_step)
        needed = math.ceil(fraction * len(calls.tasks) - 1e-9)  # 0.07 * 100 is a little over 7
        parts: dict[int, Collected] = {}
        is_told, end_s = False, math.inf
        while calls.tasks and self._remote.clock() < end_s:
            for back in calls.ready(timeout_s=LOOK_S):
                place = back.task.place
                part, again = self._taken(back)
                if part is not None:
                    parts[place] = part
                elif again is not None and not is_told:
                    self._give(again, place=place, rows=back.task.rows, env_step=env_step)
            if self._remote.is_leaving():
                needed, end_s = 0, min(end_s, self._remote.clock() + _LEAVE_S)
            if not is_told and len(parts) >= needed:
                is_told = True
                calls.control("stop_collecting", self._round_id)
        calls.forget()
        return [parts[place] for place in sorted(parts)]

    def publish(self) -> None:
        """Have all workers take the newest weights; those that do not are lost, and replaced by some that have."""
        for worker in self._remote.publish(self._remote.publish_timeout_s):
            self._remote.pool.lost(worker, how=_NO_WEIGHTS, wait_s=_REPLACE_S)

    def _taken(self, back: Returned) -> tuple[Collected | None, WorkerHandle | None]:
        """Return what came, or None and who is to collect it again: the worker, or the one that took its place.

        Rows of weights that are too old are dropped.
        """
        if back.is_lost:
            return None, back.replacement
        remote, worker, part = self._remote, back.task.worker, self._received(back)
        oldest = remote.oldest()
        if oldest is None or part.segment.version >= oldest:
            return part, None
        remote.intake.drop(part)
        if remote.is_leaving():
            return None, None
        lacking = [each.name for each in remote.publish(remote.publish_timeout_s)]
        is_first = worker.name not in self._stale
        self._stale.add(worker.name)
        if is_first and worker.name not in lacking:
            return None, worker
        return None, remote.pool.lost(worker, how=_NO_WEIGHTS, rows_lost=part.asked, wait_s=_REPLACE_S)

    def _received(self, back: Returned) -> Collected:
        return Collected(back.task.worker.name, segment_of(*back.value), self._remote.clock(), back.task.rows)

    def first(self, rows: int) -> Collected | None:
        """Give a call to each worker that has none, and return what came first; None if nothing did in time."""
        calls = self._remote.calls
        for place, worker in enumerate(self._present()):
            if worker.name not in calls.tasks:
                self._round_id += 1
                self._give(worker, place=place, rows=rows, env_step=self._remote.intake.env_step)
        if not self._came:
            came = [back for back in calls.ready(timeout_s=LOOK_S) if not back.is_lost]
            self._came.extend(self._received(back) for back in came)
        return self._came.popleft() if self._came else None

    def stop(self) -> None:
        """Tell those who still collect that it is enough."""
        self._remote.calls.control("stop_collecting", self._round_id)
