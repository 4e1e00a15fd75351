"""Fetch batches for a learner ahead of need: ask for many at once, read new segments, draw from the mirror."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.mirror import Mirror
from ding_like.comm.rest.service import CoordinatorService
from ding_like.data.batch import TransitionBatch
from ding_like.data.schema import Schema
from ding_like.data.segment_file import SegmentError
from ding_like.errors import CommError
from ding_like.types import Array

logger = logging.getLogger(__name__)

_WAIT_S = 1.0  # that a request for batches may be answered later
_REPORT_S = 0.2  # between two reports of what was learned
CLOSE_S = 15.0
_LATE_S = 2.0
_LATE_LOOK_S = 0.2  # between two tries to read what is late
_MAY_BE_LATE = ("missing", "truncated")


ReadSegment = Callable[[m.NewSegment], dict[str, Array]]
ReadOne = tuple[m.NewSegment, dict[str, Array] | None]  # None: it cannot be read


class _Late(NamedTuple):
    segment: m.NewSegment
    until_s: float  # when it is given up


class Fetched(NamedTuple):
    """One reply and the columns of the segments that it named."""

    segments: list[ReadOne]
    batches: m.Batches | None


class _Drawn(NamedTuple):
    """Row numbers of the batch that was returned last."""

    places: Array
    unique_ids: Array


class BatchReader:
    """Reader that gathers batches from the mirror by their row numbers.

    All batches of a reply have as many rows. With `on_policy` the mirror takes memory as rows come, and lanes are
    numbered anew, so that the rows of each segment have lanes of their own: collectors number theirs alike.
    """

    def __init__(self, buffer_size: int, schema: Schema | None = None, *, on_policy: bool = False) -> None:
        self._mirror = Mirror(buffer_size, schema, grows=on_policy)
        self._on_policy = on_policy
        self._batches: m.Batches | None = None
        self._next = 0
        self.num_replaced = 0  # rows of batches that could not be read
        self.drawn: list[_Drawn] = []  # since it was cleared last

    @property
    def is_empty(self) -> bool:
        """Tell whether all batches that were taken are drawn."""
        return self._batches is None or self._next == self._batches.num_batches

    def take(self, fetched: Fetched) -> None:
        """Take in one reply; all batches of the ones before must be drawn."""
        for segment, columns in fetched.segments:
            if columns is None:
                self._mirror.skip(segment)
            elif segment.serial <= self._mirror.last_serial:
                self._mirror.take_late(segment, columns)
            else:
                self._mirror.take_in(segment, columns)
        self._batches, self._next = fetched.batches, 0

    def draw(self) -> TransitionBatch:
        """Return the next batch, with a column `weight` where the index has priorities."""
        batches = self._batches
        assert batches is not None and not self.is_empty
        size = len(batches.places) // batches.num_batches
        rows = slice(self._next * size, (self._next + 1) * size)
        self._next += 1
        places, unique_ids = batches.places[rows], batches.unique_ids[rows]
        there = self._mirror.are_there(places, unique_ids)
        if not there.all():
            places, unique_ids = self._replace(places, unique_ids, there)
        self.drawn.append(_Drawn(places, unique_ids))
        batch = self._mirror.gather(places)
        if self._on_policy and "lane" in batch.columns:
            batch = batch.with_columns(lane=_lanes_by_segment(batch["lane"], unique_ids))
        return batch if batches.weights is None else batch.with_columns(weight=batches.weights[rows])

    def _replace(self, places: Array, unique_ids: Array, there: Array) -> tuple[Array, Array]:
        """Put rows of the same batch in the place of rows that could not be read."""
        good = np.flatnonzero(there)
        if not len(good):
            raise CommError("no row of a batch is in the mirror: its segments cannot be read.")
        self.num_replaced += int((~there).sum())
        chosen = np.where(there, np.arange(len(places)), good[np.arange(len(places)) % len(good)])
        return places[chosen], unique_ids[chosen]


def _lanes_by_segment(lane: Array, unique_ids: Array) -> Array:
    """Return lanes [B], or [B, T] where rows are sequences, that no two segments have in common."""
    segment = np.unique(unique_ids // m.ROWS_PER_SEGMENT, return_inverse=True)[1]
    lanes: Array = lane + segment.reshape(-1, *[1] * (lane.ndim - 1)) * (lane.max() + 1)
    return lanes


class RestBatchSource:
    """Source of batches in the order in which the coordinator drew them; a thread fetches the next ones.

    A reply's segments enter the mirror when all batches of earlier replies are drawn, so that no row is overwritten
    that a batch still waits for. `next` raises what went wrong in the thread.
    """

    def __init__(
        self,
        coordinator: CoordinatorService,
        task: m.Task,
        *,
        worker_id: str,
        read: ReadSegment,
        batch_size: int,
        buffer_size: int,
        num_batches: int,
        schema: Schema | None = None,
        train_iter: int = 0,
        learned: int = 0,
        waits_for_late: bool = False,
    ) -> None:
        """Begin at update `train_iter`, beyond which all that was granted before is granted again.

        `learned` is how many batches were learned from by then. `waits_for_late` is for learning from each row once,
        where none can take another's place.
        """
        self._coordinator = coordinator
        self._task = task
        self._worker_id = worker_id
        self._read_segment = read
        self._batch_size = batch_size
        self._num_batches = num_batches
        self._reader = BatchReader(buffer_size, schema, on_policy=waits_for_late)
        self._changed = threading.Condition()  # guards what both threads write
        self._fetched: deque[Fetched] = deque()
        self._failure: BaseException | None = None
        self._is_closed = False
        self._reports: list[m.Update] = []
        self._bad: list[str] = []
        self._waits_for_late = waits_for_late
        self._late: list[_Late] = []
        self._is_last = False  # there are no more batches than those that were fetched
        self.env_step = 0
        self.num_received = learned  # batches that came, those of earlier attempts included
        self.num_learned = learned  # batches of which an update was reported
        self._is_reported = True  # an update with the batch given out last
        self._reply: m.SampleReply | None = None  # that was taken in last
        self._info: dict[str, Any] = {}
        self._priorities: list[Array] = []
        self._reported_s = 0.0
        self._train_iter = train_iter
        self._thread = threading.Thread(target=self._run, name="batch-source", daemon=True)
        self._thread.start()

    # --- the learner's side

    def next(self, *, timeout_s: float) -> TransitionBatch | None:
        """Return the next batch, with a column `weight` where the index has priorities; None if none came in time."""
        deadline = time.monotonic() + timeout_s
        while self._reader.is_empty:
            fetched = self._wait_for_reply(deadline - time.monotonic())
            if fetched is None:
                return None
            self._reader.take(fetched)
        self._is_reported = False
        return self._reader.draw()

    @property
    def finished(self) -> bool:
        """Tell whether no batch will come any more."""
        with self._changed:
            return self._is_last and not self._fetched and self._reader.is_empty

    @property
    def num_replaced(self) -> int:
        """Return how many rows of batches could not be read and were replaced."""
        return self._reader.num_replaced

    def _wait_for_reply(self, timeout_s: float) -> Fetched | None:
        with self._changed:
            self._changed.wait_for(lambda: self._fetched or self._failure or self._is_last, max(timeout_s, 0.0))
            if self._failure is not None:
                raise self._failure
            if not self._fetched:
                return None
            self._changed.notify_all()
            return self._fetched.popleft()

    def feedback(self, train_iter: int, *, priority: Array | None, info: Callable[[], Mapping[str, Any]]) -> None:
        """Report an update with the batch given out last; many reports travel together, with the last one's `info`."""
        self._train_iter = train_iter
        if not self._is_reported:
            self._is_reported = True
            self.num_learned += 1
        if priority is not None:
            self._priorities.append(np.asarray(priority, np.float32))
        else:
            self._reader.drawn.clear()
        now = time.monotonic()
        if now - self._reported_s < _REPORT_S and len(self._priorities) < self._num_batches:
            return
        self._reported_s, self._info = now, dict(info())
        update = self._update()
        with self._changed:
            self._reports.append(update)
            self._changed.notify_all()

    def _update(self) -> m.Update:
        """Return what is told: numbers of the learner, with how many batches came and how many were learned from."""
        counts = {"received_updates": self.num_received, "learned_updates": self.num_learned}
        info = {**self._info, **counts}
        fields: dict[str, Any] = {}
        if self._priorities:
            fields = {
                "places": np.concatenate([drawn.places for drawn in self._reader.drawn]),
                "unique_ids": np.concatenate([drawn.unique_ids for drawn in self._reader.drawn]),
                "priorities": np.concatenate(self._priorities),
            }
            self._reader.drawn, self._priorities = [], []
        with self._changed:
            bad, self._bad = tuple(self._bad), []
        return m.Update(self._task.task_id, self._task.attempt, self._train_iter, info, bad_segments=bad, **fields)

    def close(self, *, timeout_s: float = CLOSE_S) -> None:
        """Send what is left to report and end the thread; may be called again."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            logger.warning("the thread that fetches batches has not ended after %.0f s", timeout_s)

    @property
    def failure(self) -> BaseException | None:
        """Return what ended the thread before its time."""
        with self._changed:
            return self._failure

    # --- the thread's side

    def _run(self) -> None:
        try:
            have = 0
            while not self._is_closed:
                self._send_reports()
                if self._has_room():
                    have = self._fetch(have)
            # Only now is it known how many batches came: one request may have been under way when it was closed.
            with self._changed:
                self._reports.append(self._update())
            self._send_reports()
        except BaseException as error:  # any error of this thread is raised in the learner's
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _has_room(self) -> bool:
        """Wait for room, or for something else to do; return whether there is room.

        What the learner has not begun must not pile up, or learning lags behind its data.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._wants_more or self._is_closed or self._reports, _WAIT_S)
            return self._wants_more and not self._is_closed

    @property
    def _wants_more(self) -> bool:
        return len(self._fetched) < 2 and not self._is_last

    def _send_reports(self) -> None:
        with self._changed:
            reports, self._reports = self._reports, []
        for report in reports:
            self._coordinator.update(self._worker_id, self._task.buffer_id, report)

    def _fetch(self, have: int) -> int:
        """Ask for batches, read what they need, and hand it over when there is room; return the last serial read."""
        reply = self._coordinator.sample(
            self._worker_id,
            self._task.buffer_id,
            m.Sample(
                self._task.task_id,
                self._task.attempt,
                self._batch_size,
                self._num_batches,
                self._train_iter,
                have,
                wait_s=_WAIT_S,
            ),
        )
        if reply is self._reply:  # an answer that came twice counts once
            return have
        self._reply = reply
        news = [segment for segment in reply.new_segments if segment.serial > have]
        segments = self._read_all(news)
        with self._changed:
            self.env_step = reply.env_step
            self._is_last |= reply.finish
            if reply.batches is not None:
                self.num_received += reply.batches.num_batches
            if segments or reply.batches is not None:
                self._fetched.append(Fetched(segments, reply.batches))
            self._changed.notify_all()
        return news[-1].serial if news else have

    def _read_all(self, news: Sequence[m.NewSegment]) -> list[ReadOne]:
        """Read segments, those of before that were late first; None in place of the columns of one that is not there.

        What is missing or short may only be late, as on network disks: such a file is tried again for two seconds, and
        others take the place of its rows meanwhile. With `waits_for_late` it is waited for.
        """
        read = self._retry_late()
        read += [(segment, self._read(segment, time.monotonic() + _LATE_S)) for segment in news]
        deadline = time.monotonic() + 2 * _LATE_S
        while self._waits_for_late and self._late and time.monotonic() < deadline:
            with self._changed:
                if self._changed.wait_for(lambda: self._is_closed, _LATE_LOOK_S):
                    break
            read += self._retry_late()
        return read

    def _retry_late(self) -> list[ReadOne]:
        """Try late segments again; return those that have come."""
        late, self._late = self._late, []
        read = [(each.segment, self._read(each.segment, each.until_s)) for each in late]
        return [(segment, columns) for segment, columns in read if columns is not None]

    def _read(self, segment: m.NewSegment, until_s: float) -> dict[str, Array] | None:
        """Return a segment's columns; None, and it is late or left out, where it cannot be read."""
        try:
            return self._read_segment(segment)
        except SegmentError as error:
            if error.code in _MAY_BE_LATE and time.monotonic() < until_s:
                self._late.append(_Late(segment, until_s))
                return None
            logger.warning("segment %s is left out: %s", segment.name, error)
            with self._changed:
                self._bad.append(segment.name)
            return None
