"""Collect by one of four patterns: here or in workers, in rounds that all take part in or each at its own pace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from ding_like.comm.channels import Order
from ding_like.pipeline.roles.collect import CollectRole
from ding_like.pipeline.roles.collect_rounds import LOOK_S, CollectRounds, Remote
from ding_like.pipeline.roles.collector_thread import CollectorThread
from ding_like.types import Setting


class Collection(Protocol):
    """Be how a scheme collects, chosen once."""

    @property
    def setting(self) -> Setting: ...

    def begin(self, random_rows: int) -> Iterator[int]:
        """Collect rows of random actions, which allow no updates, and say how many as they are put."""

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

    def begin(self, random_rows: int) -> Iterator[int]:
        if random_rows > 0:
            self._random()
            yield random_rows

    def close(self) -> None:
        """Do nothing: the collector is its owner's."""


class SynchronousCollection:
    """Collect in rounds: each worker its share of the rows, with the newest weights; ordered by place.

    Once the fraction `remote.fraction_workers` of them have finished, the others are told to stop.
    """

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._rounds = CollectRounds(remote)

    @property
    def setting(self) -> Setting:
        return self._remote.intake.report.setting

    def begin(self, random_rows: int) -> Iterator[int]:
        remote = self._remote
        self._rounds.publish()
        while random_rows > 0 and not remote.is_leaving():
            # Collectors act at random at a run's first env steps.
            parts = self._rounds.collect(random_rows, env_step=0, fraction=1.0, most=remote.random_share)
            rows = remote.intake.put_random(parts)
            random_rows -= rows
            yield rows

    def collect(self, order: Order) -> Order:
        remote = self._remote
        self._rounds.publish()
        began_s = remote.clock()
        parts = self._rounds.collect(order.rows, env_step=order.env_step, fraction=remote.fraction_workers)
        remote.intake.report.note_round(remote.clock() - began_s)
        return remote.intake.put(parts, order)

    def close(self) -> None:
        """Tell those who still collect that it is enough; the pool is its owner's."""
        self._rounds.stop()


class AsynchronousCollection(SynchronousCollection):
    """Keep a call of `segment_rows` rows under way in each worker, each with the newest weights; put what comes first.

    A thread gives the calls, ahead of the learner by `max_queue_size` segments; the learner waits for no one worker.
    """

    def __init__(self, remote: Remote, *, segment_rows: int, max_queue_size: int) -> None:
        super().__init__(remote)
        self._thread = CollectorThread(
            lambda: self._rounds.first(segment_rows),
            col_communication="asynchronous",
            broadcast=lambda: remote.publish(None),
            max_queue_size=max_queue_size,
        )

    def collect(self, order: Order) -> Order:
        collected = self._thread.step(timeout_s=LOOK_S)
        while collected is None and not self._remote.is_leaving():
            collected = self._thread.step(timeout_s=LOOK_S)
        return self._remote.intake.put([] if collected is None else [collected], order)

    def close(self) -> None:
        self._thread.stopped = True
        super().close()
        self._thread.stop()
