"""Stores: the data that a buffer keeps, in the kind of storage that the first push needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from ding_like.data.batch import TransitionBatch
from ding_like.data.rows import as_batch
from ding_like.data.schema import Schema
from ding_like.errors import ConfigError, SchemaError
from ding_like.types import Array, State
from ding_like.utils.machine import check_buffer_memory
from ding_like.worker.replay_buffer.frames import FrameStorage, rows_of_dump
from ding_like.worker.replay_buffer.storage import (
    ColumnStorage,
    ObjectStorage,
    Pushed,
    RingStorage,
    Rows,
    StreamStorage,
)

# Columns by name, or objects; oldest first.
Dump = dict[str, Any] | list[Any]


class Storage(Protocol):
    """Data at `capacity` places, where the newest overwrite the oldest."""

    capacity: int
    count: int

    @property
    def num_bytes(self) -> int: ...

    # Any: each kind takes data of its own.
    def append(self, data: Pushed) -> None: ...

    def dump(self) -> Any: ...


StorageT = TypeVar("StorageT", bound=Storage)


class Store(ABC, Generic[StorageT]):
    """Store of pushed data, in a storage of the kind that they need; there is none before the first push."""

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ConfigError(f"replay_buffer_size is {capacity}, expected a number of rows from 1.")
        check_buffer_memory(capacity, row_bytes=8)  # a reference each, at least
        self.capacity = capacity
        self.storage: StorageT | None = None

    @abstractmethod
    def as_rows(self, data: Pushed, *, as_objects: bool) -> Rows:
        """Return what was pushed as one item for each place. Raises SchemaError for what can never fit.

        `as_objects` keeps what would stack to columns as it is.
        """

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
        data = [] if self.storage is None else self.storage.dump()
        return dict(data.columns) if isinstance(data, TransitionBatch) else list(data)

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

    def _objects(self, data: Pushed, kept: Schema | None) -> list[Any]:
        """Return data that does not stack as a list. Raises SchemaError where columns are `kept`."""
        rows: list[Any] = data if isinstance(data, list) else [data]
        if rows and kept is not None:
            raise SchemaError(
                f"the buffer holds columns ({', '.join(kept)}) and was pushed {type(rows[0]).__name__} "
                "data that does not stack to such. Give all rows equal keys and shapes, or clear the buffer first."
            )
        return data.to_list() if isinstance(data, TransitionBatch) else rows


class RowStore(Store[RingStorage]):
    """Store of rows in a ring: columns where they stack, with each stacked frame once if wanted, else objects."""

    def __init__(self, capacity: int, *, frame_stack: int = 0) -> None:
        super().__init__(capacity)
        self._frame_stack = frame_stack

    def as_rows(self, data: Pushed, *, as_objects: bool) -> Rows:
        storage = self.storage
        is_of_objects = isinstance(storage, ObjectStorage)
        if not as_objects and not is_of_objects:
            batch = as_batch(data)
            if batch is not None:
                return batch
        return self._objects(data, storage.schema if isinstance(storage, ColumnStorage) else None)

    def make(self, rows: Rows) -> RingStorage:
        if not isinstance(rows, TransitionBatch):
            return ObjectStorage(self.capacity)
        schema = _schema_of(rows)
        if self._frame_stack > 0:
            return FrameStorage(self.capacity, schema, self._frame_stack)
        return ColumnStorage(self.capacity, schema)

    def dump(self) -> Dump:
        return dict(self.storage.dump_frames()) if isinstance(self.storage, FrameStorage) else super().dump()

    def parts_of(self, dump: Dump) -> Iterator[Pushed]:
        frames = rows_of_dump(dump) if isinstance(dump, dict) else None
        if frames is not None:
            yield from frames
            return
        if isinstance(dump, list) and dump and self.storage is None:
            self.storage = self.make(dump)  # what was objects stays so, even if it stacks
        yield from super().parts_of(dump)

    def end_load(self, state: State) -> None:
        """Bring each row back to its place, where a sampler identifies rows by it."""
        storage = self.storage
        if storage is None or "first_place" not in state:
            return
        first_place = state["first_place"] % storage.capacity
        if (storage.next_row - storage.count) % storage.capacity != first_place:
            rows = storage.dump()
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

    def as_rows(self, data: Pushed, *, as_objects: bool) -> Rows:
        batch = None if as_objects else as_batch(data)
        return self._objects(data, None if self.storage is None else self.storage.schema) if batch is None else batch

    def make(self, rows: Rows) -> StreamStorage:
        if not isinstance(rows, TransitionBatch):
            raise SchemaError(
                "a sequence buffer keeps rows that stack to columns; give all rows equal keys and shapes, or use "
                "type='episode' for ragged data."
            )
        schema = _schema_of(rows)
        missing = [name for name in self._needed if name not in schema]
        if missing:
            raise SchemaError(f"initial_columns {', '.join(missing)} are not among the rows' {', '.join(schema)}.")
        num_streams = self._num_streams or int(StreamStorage.streams_of(_arrays(rows)).max()) + 1
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


def _arrays(rows: TransitionBatch) -> Mapping[str, Array]:
    return {name: np.asarray(column) for name, column in rows.columns.items()}  # they may be tensors


def _schema_of(rows: TransitionBatch) -> Schema:
    return Schema.of(_arrays(rows))
