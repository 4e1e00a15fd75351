"""Rows of a parallel run: collectors write and announce segments, the learner reads them and draws batches."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from gymnasium import Space, spaces

from ding_like.comm.channels import CollectRequest, Segment, Version
from ding_like.comm.rest import messages as m
from ding_like.comm.rest.client import CoordinatorService
from ding_like.comm.rest.worker import WorkerLink
from ding_like.data.batch import Schema, TransitionBatch
from ding_like.data.segment_file import SegmentError, SegmentMeta, remove_segments, segment_file, write_segment
from ding_like.errors import CommError, ConfigError, SchemaError
from ding_like.types import Array, Json

logger = logging.getLogger(__name__)

_WAIT_S = 1.0  # that a request for batches may be answered later
_REPORT_S = 0.2  # between two reports of what was learned
CLOSE_S = 15.0
_LATE_S = 2.0
_LATE_LOOK_S = 0.2  # between two tries to read what is late
_MAY_BE_LATE = ("missing", "truncated")

ReadSegment = Callable[[m.NewSegment], dict[str, Array]]
ReadOne = tuple[m.NewSegment, dict[str, Array] | None]  # None: it cannot be read

_OBS = ("obs", "next_obs")
# A gradient is a product of two numbers of a row, and its norm squares it: the fourth power is finite in float32.
_LARGEST = 4e9
_FIRST_ROWS = 1024  # of a mirror that grows


class RowCheck:
    """Check for rows that no env of these spaces gives: other shapes, actions out of range, numbers no loss can take.

    Those are NaN, infinity and what is beyond 4e9, whose losses or gradients overflow. `schema` says which columns
    there are, and of what shape: where rows are sequences, [T, ...].
    """

    def __init__(self, observation_space: Space[Any], action_space: Space[Any], schema: Schema) -> None:
        leaves = observation_space.spaces if isinstance(observation_space, spaces.Dict) else {"": observation_space}
        self._shapes: dict[str, tuple[int, ...]] = {
            f"{prefix}/{key}" if key else prefix: tuple(space.shape or ())
            for prefix in _OBS
            for key, space in leaves.items()
        }
        self._action_space, self._schema = action_space, schema

    def __call__(self, columns: Mapping[str, Array]) -> None:
        """Raise SegmentError for columns [B, ...] or [B, T, ...] that are not to be learned from."""
        if any(column.ndim < 1 for column in columns.values()):
            raise SegmentError("schema", "a column has no rows: it is a single number")
        try:
            self._schema.check(columns, where="the learner's mirror")
        except SchemaError as error:
            raise SegmentError("schema", str(error)[:1000]) from error
        for name, column in columns.items():
            expected = self._shapes.get(name)
            if expected is not None and not self._is_of(column, expected):
                raise SegmentError("schema", f"column {name} has rows {column.shape[1:]}, the envs give {expected}")
            if column.size and (column.dtype.kind == "f" or expected is not None):
                low, high = float(column.min()), float(column.max())
                if not (-_LARGEST <= low and high <= _LARGEST):
                    raise SegmentError(
                        "schema",
                        f"column {name} has numbers that are not finite in a loss: from {low:g} to {high:g}, expected "
                        f"within {_LARGEST:g} of 0; scale them in the env (env.wrappers)",
                    )
        if "action" in columns:
            self._check_action(columns["action"])

    def _check_action(self, action: Array) -> None:
        space = self._action_space
        if not self._is_of(action, tuple(space.shape or ())):
            raise SegmentError("schema", f"column action has rows {action.shape[1:]}, the envs take {space.shape}")
        if not isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)) or not len(action):
            return
        limit = space.n if isinstance(space, spaces.Discrete) else space.nvec
        if action.dtype.kind not in "iu" or bool((action < 0).any()) or bool((action >= limit).any()):
            raise SegmentError("schema", f"column action has numbers that {space} does not have")

    def _is_of(self, column: Array, step: tuple[int, ...]) -> bool:
        """Return whether each row of a column has the shape of a step, or is a sequence of some."""
        row = column.shape[1:]
        return row == step or (len(row) == len(step) + 1 and row[1:] == step)


class Mirror:
    """Columns of `size` rows at the places that the index gave them, each with its unique id.

    A row may be a sequence: it has one place. Columns are those of `schema`; without it, those of the first segment
    that is taken in. With `grows` memory is taken for as many rows as there were at once, up to `size`.
    """

    def __init__(self, size: int, schema: Schema | None = None, *, grows: bool = False) -> None:
        self.size = size
        self.last_serial = 0  # of the segments taken in; they come in order
        self._room = min(size, _FIRST_ROWS) if grows else size
        self._schema = schema
        self._columns: dict[str, Array] = {} if schema is None else schema.allocate(self._room)
        self._unique_ids = np.full(self._room, -1, np.int64)

    def take(self, segment: m.NewSegment, columns: Mapping[str, Array] | None) -> None:
        """Copy a segment's rows to their places, those of a late one only where no newer segment has rows.

        None stands for a segment that cannot be read: no batch can hold its rows. Raises SchemaError for columns that
        do not fit those that are there.
        """
        if columns is not None:
            if self._schema is None:
                self._schema = Schema.of(columns)
                self._columns = self._schema.allocate(self._room)
            self._schema.check(columns, where="the learner's mirror")
        self._grow(min(segment.first_row + segment.rows, self.size))
        rows = np.arange(segment.rows, dtype=np.int64)
        places, unique_ids = (segment.first_row + rows) % self.size, segment.serial * m.ROWS_PER_SEGMENT + rows
        if segment.serial <= self.last_serial:
            rows = np.flatnonzero(self._unique_ids[places] < unique_ids)
            places = places[rows]
        self.last_serial = max(self.last_serial, segment.serial)
        self._unique_ids[places] = -1 if columns is None else unique_ids[rows]
        for name, column in (columns or {}).items():
            self._columns[name][places] = column[rows]

    def _grow(self, needed: int) -> None:
        """Take memory for `needed` rows: twice as much as there is, as often as it must be."""
        if needed <= self._room:
            return
        old = self._room
        while self._room < needed:
            self._room = min(2 * self._room, self.size)
        if self._schema is not None:
            grown = self._schema.allocate(self._room)
            for name, column in grown.items():
                column[:old] = self._columns[name]
            self._columns = grown
        self._unique_ids = np.concatenate([self._unique_ids, np.full(self._room - old, -1, np.int64)])

    def are_there(self, places: Array, unique_ids: Array) -> Array:
        """Tell which of these rows are still, or already, at their places; bool [B]."""
        are_there: Array = self._unique_ids[places] == unique_ids
        return are_there

    def gather(self, places: Array) -> TransitionBatch:
        """Return rows in fresh memory. Raises CommError before the first segment has come."""
        if self.last_serial == 0:
            raise CommError("a batch was asked of a mirror that has no rows yet.")
        return TransitionBatch({name: column.take(places, 0) for name, column in self._columns.items()})


# One reply: the columns of the segments that it named, and its batches.
Fetched: TypeAlias = "tuple[list[ReadOne], m.Batches | None]"


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
        self.drawn: list[tuple[Array, Array]] = []  # places and unique ids of batches, since it was cleared last

    @property
    def is_empty(self) -> bool:
        """Whether all batches that were taken are drawn."""
        return self._batches is None or self._next == self._batches.num_batches

    def take(self, segments: list[ReadOne], batches: m.Batches | None) -> None:
        """Take in one reply; all batches of the ones before must be drawn."""
        for segment, columns in segments:
            self._mirror.take(segment, columns)
        self._batches, self._next = batches, 0

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
        self.drawn.append((places, unique_ids))
        batch = self._mirror.gather(places)
        if self._on_policy and "lane" in batch.columns:
            # [B], or [B, T] where rows are sequences; no two segments have one in common.
            lane, segment = batch["lane"], np.unique(unique_ids // m.ROWS_PER_SEGMENT, return_inverse=True)[1]
            first = segment.reshape(-1, *[1] * (lane.ndim - 1)) * (lane.max() + 1)
            batch = batch.with_columns(lane=lane + first)
        return batch if batches.weights is None else batch.with_columns(weight=batches.weights[rows])

    def _replace(self, places: Array, unique_ids: Array, there: Array) -> tuple[Array, Array]:
        """Put rows of the same batch in the place of rows that could not be read."""
        good = np.flatnonzero(there)
        if not len(good):
            raise CommError("no row of a batch is in the mirror: its segments cannot be read.")
        self.num_replaced += int((~there).sum())
        chosen = np.where(there, np.arange(len(places)), good[np.arange(len(places)) % len(good)])
        return places[chosen], unique_ids[chosen]


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
        self._coordinator, self._task, self._worker_id, self._read_segment = coordinator, task, worker_id, read
        self._batch_size, self._num_batches = batch_size, num_batches
        self._reader = BatchReader(buffer_size, schema, on_policy=waits_for_late)
        self._changed = threading.Condition()  # guards what both threads write
        self._fetched: deque[Fetched] = deque()
        self._failure: BaseException | None = None
        self._is_closed = False
        self._reports: list[m.Update] = []
        self._bad: list[str] = []
        self._waits_for_late = waits_for_late
        self._late: list[tuple[m.NewSegment, float]] = []  # and when each is given up
        self._is_last = False  # there are no more batches than those that were fetched
        self.env_step = 0
        self.num_received = learned  # batches that came, those of earlier attempts included
        self.num_learned = learned  # batches of which an update was reported
        self._is_reported = True  # an update with the batch given out last
        self._reply: m.SampleReply | None = None  # that was taken in last
        self._info: dict[str, Json] = {}
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
            with self._changed:
                left_s = max(deadline - time.monotonic(), 0.0)
                self._changed.wait_for(lambda: self._fetched or self._failure or self._is_last, left_s)
                if self._failure is not None:
                    raise self._failure
                if not self._fetched:
                    return None
                self._changed.notify_all()
                fetched = self._fetched.popleft()
            self._reader.take(*fetched)
        self._is_reported = False
        return self._reader.draw()

    @property
    def finished(self) -> bool:
        """Whether no batch will come any more."""
        with self._changed:
            return self._is_last and not self._fetched and self._reader.is_empty

    @property
    def num_replaced(self) -> int:
        """Number of rows of batches that could not be read and were replaced."""
        return self._reader.num_replaced

    def feedback(self, train_iter: int, *, priority: Array | None, info: Callable[[], Mapping[str, Json]]) -> None:
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
        """Return the next report: numbers of the learner, with how many batches came and how many were learned from."""
        counts = {"received_updates": self.num_received, "learned_updates": self.num_learned}
        fields: dict[str, Json] = {}
        if self._priorities:
            places, unique_ids = map(np.concatenate, zip(*self._reader.drawn, strict=True))
            fields = {"places": places, "unique_ids": unique_ids, "priorities": np.concatenate(self._priorities)}
            self._reader.drawn, self._priorities = [], []
        with self._changed:
            bad, self._bad = tuple(self._bad), []
        info = {**self._info, **counts}
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
        """Error that ended the thread before its time."""
        with self._changed:
            return self._failure

    # --- the thread's side

    def _run(self) -> None:
        try:
            have = 0
            while not self._is_closed:
                self._send_reports()
                # What the learner has not begun must not pile up, or learning lags behind its data.
                with self._changed:
                    self._changed.wait_for(lambda: self._wants_more or self._is_closed or self._reports, _WAIT_S)
                    has_room = self._wants_more and not self._is_closed
                if has_room:
                    have = self._fetch(have)
            # Only now is it known how many batches came: one request may have been under way when it was closed.
            with self._changed:
                self._reports.append(self._update())
            self._send_reports()
        except BaseException as error:  # any error of this thread is raised in the learner's
            with self._changed:
                self._failure = error
                self._changed.notify_all()

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
        task = self._task
        asked = (task.task_id, task.attempt, self._batch_size, self._num_batches, self._train_iter, have)
        reply = self._coordinator.sample(self._worker_id, task.buffer_id, m.Sample(*asked, wait_s=_WAIT_S))
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
                self._fetched.append((segments, reply.batches))
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
        read = [(segment, self._read(segment, until_s)) for segment, until_s in late]
        return [(segment, columns) for segment, columns in read if columns is not None]

    def _read(self, segment: m.NewSegment, until_s: float) -> dict[str, Array] | None:
        """Return a segment's columns; None, and it is late or left out, where it cannot be read."""
        try:
            return self._read_segment(segment)
        except SegmentError as error:
            if error.code in _MAY_BE_LATE and time.monotonic() < until_s:
                self._late.append((segment, until_s))
                return None
            logger.warning("segment %s is left out: %s", segment.name, error)
            with self._changed:
                self._bad.append(segment.name)
            return None


class RestRowSink:
    """Sink of a collector's segments, for the present task of its link.

    A segment that is written but could not be announced is announced with the next one, by the next task if need be.
    """

    def __init__(self, link: WorkerLink) -> None:
        self._link = link
        self._num_segments = 0  # of the worker's whole life: it is in their names
        self._waiting: deque[m.SegmentInfo] = deque()

    @property
    def waiting(self) -> list[m.SegmentInfo]:
        """Metadata of the segments still to be announced, the oldest first."""
        return list(self._waiting)

    def drop_waiting(self) -> None:
        """Delete segments that were not announced: on-policy, rows of old weights, which are not wanted any more."""
        names = [each.name for each in self._waiting]
        self._waiting.clear()
        remove_segments(self._link.files.segments, names)

    def put(self, segment: Segment) -> CollectRequest:
        """Write a segment, announce it, and return what is to be done next.

        Raises SegmentError where the disk stays full for ten minutes, CommError if the coordinator refuses it.
        """
        self.queue(self.write(self.next_name(), segment))
        return self.send(self.waiting)

    def next_name(self) -> str:
        """Return the name of the next segment, a new one with each call."""
        number, self._num_segments = self._num_segments, self._num_segments + 1
        return f"{self._link.worker_id}.{number:08d}"

    def write(self, name: str, segment: Segment) -> m.SegmentInfo:
        """Write a segment where the learner finds it; return what is announced about it.

        Raises ConfigError for rows that do not stack, SegmentError where the disk stays full for ten minutes.
        """
        (task, _), files = self._link.job, self._link.files
        if not isinstance(segment.batch, TransitionBatch):
            raise ConfigError("the policy gives rows that do not stack; mode parallel needs rows of equal shapes.")
        columns, version = segment.batch.columns, segment.version
        of_rows = dict[str, Any](
            policy_version=version.update, policy_attempt=version.attempt, env_steps=segment.env_steps
        )
        owner = (task.task_id, task.attempt, self._link.worker_id, int(name.rpartition(".")[2]))
        meta = SegmentMeta(*owner, **of_rows, observed=segment.observed)
        written = self._link.when_there_is_room(task, lambda: write_segment(files.segments, name, columns, meta))
        files.share(segment_file(files.segments, name))
        return m.SegmentInfo(**written._asdict(), **of_rows, stats=dict(segment.stats))

    def queue(self, info: m.SegmentInfo) -> None:
        """Queue what is announced of a segment; a failed `send` leaves it in the queue."""
        self._waiting.append(info)

    def send(self, infos: Sequence[m.SegmentInfo]) -> CollectRequest:
        """Announce segments, which empties the queue, and return the next order."""
        task, _ = self._link.job
        message = m.SendData(task.attempt, tuple(infos))
        reply = self._link.coordinator.send_data(self._link.worker_id, task.task_id, message)
        self._waiting.clear()
        for rejected in reply.rejected:
            raise CommError(f"the coordinator refuses segment {rejected.name}: {rejected.code}.")
        return self._order(reply)

    def order(self, *, timeout_s: float) -> CollectRequest:
        """Return what is to be done next, after a wait of `timeout_s` at most for rows that may be collected."""
        task, handle = self._link.job
        reply = self._link.ask_task(task, wait_s=timeout_s)
        if reply.credit == 0 and not reply.finish:
            handle.pause()  # the coordinator may be too busy to let anyone wait
        return self._order(reply)

    def _order(self, reply: m.TaskInfoReply | m.SendDataReply) -> CollectRequest:
        """Return the order in an answer; a heartbeat may have brought the wish to end the task."""
        _, handle = self._link.job
        handle.in_answers = reply.policy
        finish = reply.finish or handle.finish_asked
        newest = None if reply.policy is None else Version(reply.policy.attempt, reply.policy.version)
        return CollectRequest(finish, 0 if finish else reply.credit, reply.env_step, newest)
