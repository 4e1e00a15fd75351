"""The replay buffer, put together of a store, a sampler and a limiter; stores; limits, sums and files of the flow."""

from __future__ import annotations

import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple

import numpy as np

from ding_like.data.batch import Schema, TransitionBatch
from ding_like.data.rows import as_batch
from ding_like.data.segment_file import is_column_file, load_columns, save_columns
from ding_like.errors import CheckpointError, ConfigError, SchemaError
from ding_like.types import Config, Report, SampleUnit, State
from ding_like.utils.bounds import Configurable
from ding_like.utils.checkpoint import load_state, save_state
from ding_like.utils.log import build_logger, close_logger
from ding_like.utils.measure import Interval
from ding_like.utils.processes import check_buffer_memory
from ding_like.utils.seeding import make_rng, rng_state, set_rng_state
from ding_like.worker.replay_buffer.sampler import Sampler
from ding_like.worker.replay_buffer.storage import (
    ColumnStorage,
    Dump,
    FrameStorage,
    ObjectStorage,
    Pushed,
    RingStorage,
    Rows,
    StorageT,
    StreamStorage,
    arrays_of,
    rows_of_dump,
)

_LEFT_AFTER_WINDOW = 0.01
_SLACK = 0.1  # rows: those of a request have not faded yet, and would not pass exactly at a limit


@dataclass
class RateLimiter:
    """Limit on the number of pushed rows per sampled row: from `min_ratio` to `max_ratio`.

    The rows of a request count as if they had passed, so that no push or sample goes beyond the limits by itself.
    Counts fade to 1 % in `window_s`: only the recent past matters. Before the first sample everything may pass.
    """

    min_ratio: float
    max_ratio: float
    window_s: float
    clock: Callable[[], float] = field(default=time.monotonic, kw_only=True)

    def __post_init__(self) -> None:
        low, high = self.min_ratio, self.max_ratio
        if not 0 <= low <= high:
            raise ConfigError(f"push_sample_rate_limit has min {low} and max {high}, expected 0 <= min <= max.")
        if not self.window_s > 0:
            raise ConfigError(f"thruput_controller.window_seconds is {self.window_s}, expected more than 0.")
        self.clear()

    @classmethod
    def from_cfg(cls, cfg: Config) -> RateLimiter | None:
        """Return the limiter that `thruput_controller` describes; None if it limits nothing."""
        limit = cfg["push_sample_rate_limit"]
        limiter = cls(limit["min"], limit["max"], cfg["window_seconds"])
        return None if limit["min"] == 0 and limit["max"] == float("inf") else limiter

    def may_push(self, rows: int = 1) -> bool:
        """Return whether pushed rows per sampled row will be at most the maximum with these rows.

        They may pass anyway while there are too few for a sample of the last size: otherwise limits that lie closer
        together than one push and one sample would stop both for good.
        """
        self._fade()
        is_below = self._pushed + rows <= self.max_ratio * self._sampled + _SLACK
        return self._sampled == 0 or is_below or not self._is_enough_for(self._last_size)

    def may_sample(self, rows: int = 1) -> bool:
        """Return whether pushed rows per sampled row will be at least the minimum with a sample of `rows`."""
        self._fade()
        self._last_size = rows
        return self._sampled == 0 or self._is_enough_for(rows)

    def _is_enough_for(self, rows: int) -> bool:
        return self._pushed + _SLACK >= self.min_ratio * (self._sampled + rows)

    def add(self, *, pushed: int = 0, sampled: int = 0) -> None:
        """Count rows."""
        self._fade()
        self._pushed += pushed
        self._sampled += sampled

    def clear(self) -> None:
        """Reset the counts."""
        self._pushed = self._sampled = 0.0
        self._since = self.clock()
        self._last_size = 1  # of the samples that were asked for

    def state_dict(self) -> State:
        """Return the counts, faded until now."""
        self._fade()
        return {"pushed": self._pushed, "sampled": self._sampled}

    def load_state_dict(self, state: State) -> None:
        """Restore saved counts; the time since then does not count, as clocks differ between processes."""
        self.clear()
        self._pushed, self._sampled = float(state["pushed"]), float(state["sampled"])

    def __str__(self) -> str:
        return (
            f"lately {self._pushed:.1f} rows pushed for {self._sampled:.1f} sampled, "
            f"the ratio shall be from {self.min_ratio:g} to {self.max_ratio:g}"
        )

    def _fade(self) -> None:
        now = self.clock()
        left = _LEFT_AFTER_WINDOW ** ((now - self._since) / self.window_s)
        self._since = now
        self._pushed *= left
        self._sampled *= left


class UsedDataRemover:
    """Files of the rows of a buffer, which are deleted when their rows are overwritten or cleared."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self.paths: deque[str] = deque()  # of the rows in the buffer, oldest first

    @staticmethod
    def paths_of(data: Rows) -> list[str]:
        """Return the file of each datum. Raises SchemaError for one that is not a dict with a 'data_id'."""
        for item in data:
            if not isinstance(item, Mapping) or "data_id" not in item:
                raise SchemaError(
                    f"enable_track_used_data needs dicts with 'data_id' (the path of a file), got {item!r}. "
                    "Push such dicts, or switch the tracking off."
                )
        return [item["data_id"] for item in data]

    def delete(self, *, all_but: int = 0) -> None:
        """Delete the files of all rows but the newest."""
        while len(self.paths) > all_but:
            path = self.paths.popleft()
            try:
                os.remove(path)
            except FileNotFoundError:
                pass  # it was deleted by another process
            except OSError as error:
                self._logger.warning("used data %s cannot be deleted: %s", path, error)


class IBuffer(Configurable, ABC):
    """Buffer of training data. A push copies; a sample is fresh memory.

    `unit` is one item of a sample. A buffer that `needs_env` is built with `make_env=`, a function that makes one env
    of the run, and must hold the rows themselves.
    """

    unit: SampleUnit = "row"
    needs_env: ClassVar[bool] = False

    @classmethod
    def for_pipeline(cls, cfg: Config, **kwargs: Any) -> IBuffer:  # those of the class's constructor
        """Return a buffer as pipelines use it, by `sample(size, train_iter)`."""
        return cls(cfg, **kwargs)  # type: ignore[call-arg]  # each class has its own constructor

    @abstractmethod
    def push(self, data: Pushed, cur_collector_envstep: int) -> None:
        """Store a batch, a list, or one datum of any kind."""

    @abstractmethod
    def update(self, info: Report) -> None:
        """Use the learner's report on its data, e.g. priorities."""

    @abstractmethod
    def sample(self, batch_size: int, cur_learner_iter: int) -> Rows | None:
        """Return `batch_size` data, or None if there are too few; the log has the reason."""

    @abstractmethod
    def clear(self) -> None:
        """Remove all data."""

    @abstractmethod
    def count(self) -> int:
        """Return the number of data."""

    @property
    def num_bytes(self) -> int:
        """Approximate memory of the data; 0 where it is unknown."""
        return 0

    @abstractmethod
    def save_data(self, file_name: str) -> None:
        """Write the data to a file, whole or not at all."""

    @abstractmethod
    def load_data(self, file_name: str) -> None:
        """Push the data of a file that `save_data` wrote."""

    def cut(self) -> None:
        """Separate later rows from those stored: called where open episodes do not continue."""

    @abstractmethod
    def state_dict(self) -> State:
        """Return the state that a later sample depends on, in memory of its own."""

    @abstractmethod
    def load_state_dict(self, _state_dict: State) -> None:
        """Restore what `state_dict` returned."""


class Store(ABC, Generic[StorageT]):
    """Store of pushed data, in a storage of the kind that they need; there is none before the first push."""

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ConfigError(f"replay_buffer_size is {capacity}, expected a number of rows from 1.")
        check_buffer_memory(capacity, row_bytes=8)  # a reference each, at least
        self.capacity = capacity
        self.storage: StorageT | None = None

    def as_rows(self, data: Pushed, *, as_objects: bool) -> Rows:
        """Return what was pushed as one item for each place. Raises SchemaError for what can never fit.

        `as_objects` keeps what would stack to columns as it is.
        """
        batch = None if as_objects or self._has_objects else as_batch(data)
        return self._objects(data) if batch is None else batch

    @abstractmethod
    def make(self, rows: Rows) -> StorageT:
        """Return an empty storage of the kind that these rows need."""

    def append(self, rows: Rows) -> StorageT:
        """Copy rows in and return the storage. Raises SchemaError, and changes nothing, if they do not fit."""
        storage = self.make(rows) if self.storage is None else self.storage
        storage.append(rows)
        self.storage = storage
        return storage

    @property
    def count(self) -> int:
        """How many places are taken."""
        storage = self.storage
        return 0 if storage is None else storage.count

    def dump(self) -> Dump:
        """Return all data in fresh memory."""
        return [] if self.storage is None else self.storage.dump()

    def parts_of(self, dump: Dump) -> Iterator[Pushed]:
        """Yield the data to push, in order, to restore a dump."""
        yield TransitionBatch(dump) if isinstance(dump, dict) else dump

    def cut(self) -> None:
        """Separate later data from those stored."""

    def state_dict(self) -> State:
        """Return the state that a later sample depends on beside the data."""
        return {}

    def begin_load(self, state: State) -> None:
        """Remove all data, and prepare for those of a saved state."""
        self.storage = None

    def end_load(self, state: State) -> None:
        """Restore what `state_dict` returned; the data are back already."""

    @property
    def _has_objects(self) -> bool:
        return self.storage is not None and self.storage.schema is None

    def _objects(self, data: Pushed) -> list[Any]:
        """Return data that does not stack as a list. Raises SchemaError where columns are kept."""
        rows: list[Any] = data if isinstance(data, list) else [data]
        if rows and self.storage is not None and self.storage.schema is not None:
            raise SchemaError(
                f"the buffer holds columns ({', '.join(self.storage.schema)}) and was pushed {type(rows[0]).__name__} "
                "data that does not stack to such. Give all rows equal keys and shapes, or clear the buffer first."
            )
        return data.to_list() if isinstance(data, TransitionBatch) else rows


class RowStore(Store[RingStorage]):
    """Store of rows in a ring: columns where they stack, with each stacked frame once if wanted, else objects."""

    def __init__(self, capacity: int, *, frame_stack: int = 0) -> None:
        super().__init__(capacity)
        self._frame_stack = frame_stack

    def make(self, rows: Rows) -> RingStorage:
        if not isinstance(rows, TransitionBatch):
            return ObjectStorage(self.capacity)
        schema = Schema.of(arrays_of(rows))
        if self._frame_stack > 0:
            return FrameStorage(self.capacity, schema, self._frame_stack)
        return ColumnStorage(self.capacity, schema)

    def parts_of(self, dump: Dump) -> Iterator[Pushed]:
        if isinstance(dump, dict):
            yield from rows_of_dump(dump)
            return
        if dump and self.storage is None:
            self.storage = ObjectStorage(self.capacity)  # what was objects stays so, even if it stacks
        yield dump

    def end_load(self, state: State) -> None:
        """Bring each row back to its place, where a sampler identifies rows by it."""
        storage = self.storage
        if storage is None or "first_place" not in state:
            return
        first_place = state["first_place"] % storage.capacity
        if (storage.next_row - storage.count) % storage.capacity != first_place:
            rows = storage.gather(storage.all_places())
            storage.next_row, storage.count = first_place, 0
            storage.append(rows)


class StreamStore(Store[StreamStorage]):
    """Store of rows by stream, so that rows which follow each other are neighbours.

    `num_streams` None makes room for as many as are seen. The rows must have the columns `needed`.
    """

    def __init__(self, capacity: int, *, num_streams: int | None = None, needed: Sequence[str] = ()) -> None:
        super().__init__(capacity)
        if num_streams is not None and num_streams < 1:
            raise ConfigError(f"num_streams is {num_streams}, expected a number from 1, or None.")
        self._num_streams = num_streams
        self._may_widen = num_streams is None
        self._needed = tuple(needed)

    def make(self, rows: Rows) -> StreamStorage:
        if not isinstance(rows, TransitionBatch):
            raise SchemaError(
                "a sequence buffer keeps rows that stack to columns; give all rows equal keys and shapes, or use "
                "type='episode' for ragged data."
            )
        columns = arrays_of(rows)
        schema = Schema.of(columns)
        missing = [name for name in self._needed if name not in schema]
        if missing:
            raise SchemaError(f"initial_columns {', '.join(missing)} are not among the rows' {', '.join(schema)}.")
        num_streams = self._num_streams or int(StreamStorage.streams_of(columns).max()) + 1
        return StreamStorage(self.capacity, schema, num_streams, may_widen=self._may_widen)

    def cut(self) -> None:
        if self.storage is not None:
            self.storage.cut()

    def state_dict(self) -> State:
        return {} if self.storage is None else self.storage.state_dict()

    def begin_load(self, state: State) -> None:
        super().begin_load(state)
        self._num_streams = state.get("num_streams", self._num_streams)

    def end_load(self, state: State) -> None:
        if self.storage is not None and "serials" in state:
            self.storage.load_state_dict(state)


class ReplayBuffer(IBuffer):
    """Buffer of a store, a sampler that draws from it, and a limiter of its rates; threads may share it.

    Pushed data is copied and samples are memory of their own, so no caller sees what another writes.
    """

    def __init__(
        self,
        store: Store[StorageT],
        sampler: Sampler[StorageT],
        limiter: RateLimiter | None = None,
        *,
        rng: np.random.Generator | None = None,
        tb_logger: object = None,  # a MetricsSink, a SummaryWriter or None
        exp_name: str = "default_experiment",
        instance_name: str = "buffer",
        report_every_s: float = 60,
        tracks_used_data: bool = False,
    ) -> None:
        """Open the buffer's log; `tracks_used_data` deletes the files, named by 'data_id', of rows that leave."""
        # Any: the two agree on the kind of storage, see the signature.
        self._store: Store[Any] = store
        self._sampler: Sampler[Any] = sampler
        self._limiter = limiter
        self.unit = sampler.unit
        self._instance_name = sampler.buffer_name = instance_name
        self._add_scalar = getattr(tb_logger, "add_scalar", None)
        self._logger, _ = build_logger(Path(exp_name, "log", instance_name), instance_name)
        self._rng = make_rng(0, instance_name) if rng is None else rng
        # Number of data pushed since the start, or the last `clear` that resets it; loaded data count.
        self.push_count = 0
        self._lock = threading.Lock()
        self._remover = UsedDataRemover(self._logger) if tracks_used_data else None
        self._reports = Interval(report_every_s)
        self._sums = dict.fromkeys(("pushed_in", "sampled_out", "removed"), 0.0)
        self._refusals, self._drops = (Interval(report_every_s, starts_due=True) for _ in range(2))
        self._env_step = 0
        self._train_iter = 0
        self._has_warned_of_update = False

    def start(self) -> None:
        """Do nothing: for callers in DI-engine's style. Files of used data are deleted as their rows leave."""

    def close(self) -> None:
        """Clear the buffer and close its log; may be called again."""
        self.clear()
        close_logger(self._logger)

    def __del__(self) -> None:
        # Without its last attribute the constructor failed before there was anything to close.
        if hasattr(self, "_has_warned_of_update"):
            self.close()

    def push(self, data: Pushed, cur_collector_envstep: int) -> None:
        """Copy data in: a TransitionBatch, a list (each item is a row), one mapping, or one object of any kind.

        Drops the data, with a line in the log, while the limiter admits none.
        Raises SchemaError, and changes nothing, if it does not fit what is stored, or has an invalid priority.
        """
        with self._lock:
            asked = len(data) if isinstance(data, (list, TransitionBatch)) else 1
            if self._limiter is not None and not self._limiter.may_push(asked):
                if self._drops.pass_s():
                    self._logger.info("pushed data is dropped: %s", self._limiter)
                return
            num_rows, removed = self._append(data)
        self._env_step = cur_collector_envstep
        self._count(pushed_in=num_rows, removed=removed)

    def sample(
        self, size: int, cur_learner_iter: int, sample_range: slice | None = None, replace: bool = False
    ) -> Rows | None:
        """Return `size` units of data, drawn as the sampler does: a batch of rows, windows or episodes, or objects.

        `sample_range` restricts the draw by age: slice(-10, None) are the ten newest. Without `replace` nothing comes
        twice, except by priority. Returns None, with the reason in the log, if there are too few.
        """
        if size < 0:
            raise SchemaError(f"a sample of {size} was asked for; give a number from 0.")
        train_iter, ages, limiter = cur_learner_iter, sample_range, self._limiter
        with self._lock:
            sampler, storage = self._sampler, self._store.storage
            if storage is None:
                if size:
                    self._refuse(size, 0)
                return None if size else []
            if limiter is not None and size and not limiter.may_sample(size):
                sampler.expire(train_iter)
                if self._refusals.pass_s():
                    self._logger.info("no sample of %d: %s", size, limiter)
                return None
            places = sampler.draw(storage, size, train_iter=train_iter, ages=ages, replace=replace, rng=self._rng)
            if isinstance(places, int):
                self._refuse(size, places)
                return None
            data = sampler.gather(storage, places, train_iter)
            averages = sampler.averages
            if limiter is not None:
                limiter.add(sampled=size)
        self._train_iter = train_iter
        if averages is not None:
            self._log_values("sampled rows: ", averages)
        self._count(sampled_out=size)
        return data

    def update(self, info: Report) -> None:
        """Give data new priorities: `replay_buffer_idx` and `replay_unique_id` of a sample, and `priority`, all [B].

        Data that has left the buffer is skipped; of a place given twice the last priority stays. Warns once if there
        no priorities here. Raises SchemaError, and changes nothing, for a priority that is negative or not finite,
        or a wrong shape.
        """
        with self._lock:
            is_of_use = self._sampler.update(self._store.storage, info)
        if not is_of_use and not self._has_warned_of_update:
            self._has_warned_of_update = True
            self._logger.warning(
                "this buffer samples evenly: priorities are ignored; type='advanced' uses them, and for windows "
                "type='prioritised_sequence'"
            )

    # Whether `clear` resets the count of pushed rows.
    clear_resets_push_count: ClassVar[bool] = True

    def clear(self) -> None:
        """Remove all data, their schema and, except for prioritised buffers, `push_count`."""
        with self._lock:
            self._store.storage = None
            if self.clear_resets_push_count:
                self.push_count = 0
            self._forget()
            if self._remover is not None:
                self._remover.delete()

    def count(self) -> int:
        """Return how much data there is to sample from."""
        storage = self._store.storage
        return 0 if storage is None else self._sampler.count(storage)

    @property
    def num_bytes(self) -> int:
        """Approximate memory of the data."""
        storage = self._store.storage
        return 0 if storage is None else storage.num_bytes

    def save_data(self, file_name: str) -> None:
        """Write the data to a file, whole or not at all: columns as safetensors, objects as a zip of plain data.

        Raises CheckpointError for objects that are no plain data.
        """
        with self._lock:
            data = self._dump()
        if isinstance(data, dict) and data:
            save_columns(file_name, data)
        else:
            save_state(file_name, {"data": data})

    def load_data(self, file_name: str) -> None:
        """Push the data of a file that `save_data` wrote, oldest first, and separate them from later rows."""
        if is_column_file(file_name):
            data: Any = load_columns(file_name)
        else:
            state = load_state(file_name, what="buffer data")
            if "data" not in state:
                raise CheckpointError(f"{file_name} holds {', '.join(state)} and no 'data'; give a file of save_data.")
            data = state["data"]
        with self._lock:
            self._append_dump(data)
            self._store.cut()

    def cut(self) -> None:
        """Separate later rows from those stored: called where open episodes do not continue."""
        with self._lock:
            self._store.cut()

    def state_dict(self) -> State:
        """Return data (oldest first), counts and generator, in memory of its own."""
        with self._lock:
            return {
                "data": self._dump(),
                "push_count": self.push_count,
                "rng": rng_state(self._rng),
                **self._store.state_dict(),
                **self._sampler.state_dict(self._store.storage),
                "limiter": None if self._limiter is None else self._limiter.state_dict(),
            }

    def load_state_dict(self, _state_dict: State) -> None:
        """Restore what `state_dict` returned, so that equal calls give equal samples; a state {'data'} is pushed."""
        with self._lock:
            if _state_dict.keys() == {"data"}:
                self._append_dump(_state_dict["data"])
                return
            set_rng_state(self._rng, _state_dict["rng"])
            self._store.begin_load(_state_dict)
            self._forget()
            if self._remover is not None:
                self._remover.paths.clear()
            self._append_dump(_state_dict["data"])
            self.push_count = _state_dict["push_count"]
            self._store.end_load(_state_dict)
            self._sampler.load_state_dict(self._store.storage, _state_dict)
            if self._limiter is not None:
                self._limiter.clear()
                if _state_dict["limiter"] is not None:  # None: the saved buffer had no limits, and rates start over
                    self._limiter.load_state_dict(_state_dict["limiter"])

    @property
    def replay_buffer_size(self) -> int:
        """Capacity, in data."""
        return self._store.capacity

    def _append(self, data: Pushed) -> tuple[int, int]:
        """Copy data in and return (how many rows, how many they overwrote); the caller holds the lock."""
        store, sampler, remover = self._store, self._sampler, self._remover
        data, own = sampler.split(data)
        rows = store.as_rows(data, as_objects=remover is not None)
        num_rows = len(rows)
        if num_rows == 0:
            return 0, 0
        paths = [] if remover is None else remover.paths_of(rows)
        before = store.count
        storage = store.append(rows)
        sampler.added(storage, num_rows, own)
        self.push_count += num_rows
        if self._limiter is not None:
            self._limiter.add(pushed=num_rows)
        if remover is not None:
            remover.paths.extend(paths)
            remover.delete(all_but=store.capacity)
        return num_rows, before + num_rows - storage.count

    def _forget(self) -> None:
        self._sampler.clear()
        if self._limiter is not None:
            self._limiter.clear()

    def _dump(self) -> Dump:
        dump, storage = self._store.dump(), self._store.storage
        return dump if storage is None else self._sampler.dump(storage, dump)

    def _append_dump(self, dump: Dump) -> None:
        """Copy in what `_dump` returned; the caller holds the lock."""
        data, own = self._sampler.split_dump(dump)
        for rows in self._store.parts_of(data):
            self._append(rows)
        if own is not None and self._store.storage is not None:
            self._sampler.restore(self._store.storage, own)

    def _refuse(self, size: int, available: int) -> None:
        if self._refusals.pass_s():
            self._logger.info("no sample of %d rows: there are %d to draw from", size, available)

    def _count(self, **rows: int) -> None:
        """Count `pushed_in`, `sampled_out` or `removed` rows, and write the sums of a window once it is over."""
        for name, number in rows.items():
            self._sums[name] += number
        passed_s = self._reports.pass_s()
        if passed_s:
            sums, self._sums = self._sums, dict.fromkeys(self._sums, 0.0)
            self._log_values("", {**sums, "window_s": passed_s, "current_have": self.count()})

    def _log_values(self, title: str, values: Mapping[str, float]) -> None:
        # Not to metrics.jsonl: a resumed run must repeat that line by line, and these depend on the clock.
        self._logger.info("%s%s", title, ", ".join(f"{name} {value:g}" for name, value in values.items()))
        if self._add_scalar is not None:
            for name, value in values.items():
                self._add_scalar(f"{self._instance_name}_iter/{name}", value, self._train_iter)
                self._add_scalar(f"{self._instance_name}_step/{name}", value, self._env_step)


class Parts(NamedTuple):
    """Parts of a buffer; Any: each preset's two agree on the storage."""

    store: Store[Any]
    sampler: Sampler[Any]
    limiter: RateLimiter | None = None
