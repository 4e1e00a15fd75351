"""Rings of rows: columns, one ring or one for each stream, objects where rows have no schema, and stacked frames.

Samplers choose rows by age (0 is the oldest row that is left), and `rows` returns their places.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeAlias, TypeVar

import numpy as np

from ding_like.data.batch import Field, Schema, TransitionBatch
from ding_like.data.sum_tree import take_rows
from ding_like.errors import ConfigError, SchemaError
from ding_like.types import Array, State
from ding_like.utils.processes import check_buffer_memory

# What a user pushes: a TransitionBatch, episodes, a list, one mapping, or one object of any kind.
Pushed: TypeAlias = Any
# One item for each place: a TransitionBatch, episodes, or objects.
Rows: TypeAlias = Sequence[Any]

logger = logging.getLogger(__name__)

# Columns by name, or objects; oldest first.
Dump = dict[str, Any] | list[Any]


# Data at `capacity` places, where the newest overwrite the oldest.
StorageT = TypeVar("StorageT", bound="RingStorage | StreamStorage")

_FLOAT = "f"
_MIXED = ("if", "uf", "fi", "fu")  # kinds of a stored and a new column that one dtype of floats may hold
STREAM = "stream"  # a column of a store that decides itself which rows follow each other
_STREAM_COLUMNS = (STREAM, "lane", "env_id")
_END_COLUMNS = ("done", "terminated", "truncated")


def arrays_of(rows: TransitionBatch) -> dict[str, Array]:
    """Return the columns of rows, which may be tensors, as arrays."""
    return {name: np.asarray(column) for name, column in rows.columns.items()}


def _holds(dtype: np.dtype[Any], values: Array) -> bool:
    """Return whether a dtype of floats holds values without a loss."""
    if values.dtype.kind == _FLOAT:
        return values.dtype.itemsize <= dtype.itemsize
    # Whole numbers up to 2^p are exact with p bits of precision; larger ones may not be.
    limit = 2 ** (np.finfo(dtype).nmant + 1)
    return not values.size or (-limit <= int(values.min()) and int(values.max()) <= limit)


class RingStorage(ABC):
    """Ring of `capacity` places for rows; new ones overwrite the oldest. Without a `schema` they are objects."""

    schema: Schema | None = None

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.next_row = 0
        self.count = 0

    def rows(self, ages: Array) -> Array:
        """Return the places of rows by age: 0 is the oldest row, `count - 1` the newest.

        In a ring that is full, places of the older rows are counted from its end: -1 is the last place.
        """
        oldest = self.next_row - self.count
        return ages if oldest == 0 else ages + oldest

    def append(self, data: Pushed) -> None:
        """Copy rows in; of more than `capacity`, only the last stay.

        Raises SchemaError, and changes nothing, if they do not fit what is stored.
        """
        source = self._accept(data)
        size, start = len(data), self.next_row
        self.next_row = (start + size) % self.capacity
        self.count = min(self.count + size, self.capacity)
        if start + size <= self.capacity:
            self._write(source, slice(start, start + size), None)
            return
        for places, part in self.newest(size):
            self._write(source, places, part)

    def newest(self, size: int) -> Iterator[tuple[slice, slice]]:
        """Yield where the newest `size` rows lie that are left: (places, which of the rows), in one or two parts."""
        kept = min(size, self.capacity)
        start = (self.next_row - kept) % self.capacity
        first = min(kept, self.capacity - start)
        yield slice(start, start + first), slice(size - kept, size - kept + first)
        if first < kept:
            yield slice(0, kept - first), slice(size - kept + first, size)

    def all_places(self) -> Array:
        """Return the places of all rows, oldest first."""
        return self.rows(np.arange(self.count))

    def places_of_ages(self, ages: slice) -> Array:
        """Return the places of the rows of these ages."""
        return self.all_places()[ages] % self.capacity

    def dump(self) -> Dump:
        """Return all data, oldest first, in fresh memory: columns by name, or objects."""
        data = self.gather(self.all_places())
        return dict(data.columns) if isinstance(data, TransitionBatch) else list(data)

    @property
    @abstractmethod
    def num_bytes(self) -> int:
        """About how much memory the data take."""

    @abstractmethod
    def gather(self, rows: Array) -> Rows:
        """Return the data at these places, in fresh memory."""

    @abstractmethod
    def _accept(self, data: Rows) -> Any:
        """Return `data` as `_write` takes it. Raises SchemaError if it does not fit."""

    @abstractmethod
    def _write(self, source: Any, places: slice, part: slice | None) -> None:
        """Copy `source[part]`, or all of it for None, into these places."""


class ColumnStorage(RingStorage):
    """Ring of rows: every column of a schema in one preallocated array [capacity, ...].

    Where a column has whole numbers and is pushed floats, or the reverse, it becomes the narrowest float that holds
    both exactly, or stays as it is.
    """

    schema: Schema

    def __init__(self, capacity: int, schema: Schema) -> None:
        super().__init__(capacity)
        check_buffer_memory(capacity, schema.row_bytes)
        self.schema = schema
        self._columns = schema.allocate(capacity)

    @property
    def num_bytes(self) -> int:
        return self.count * self.schema.row_bytes

    def gather(self, rows: Array) -> TransitionBatch:
        return TransitionBatch.of_length(len(rows), take_rows(self._columns, rows, self.capacity))

    def _accept(self, data: Pushed) -> Mapping[str, Array]:
        columns: Mapping[str, Array] = data.columns
        fits = len(columns) == len(self._columns)
        for name, own in self._columns.items():
            column = columns.get(name)
            # numpy would silently broadcast a wrong shape and cast a wrong dtype.
            if column is None or column.dtype is not own.dtype or column.shape[1:] != own.shape[1:]:
                fits = False
        if fits:
            return columns
        # A tensor, or an equal dtype that is another object, is fine after all.
        fitted, schema = self._fit(arrays_of(data))
        schema.check(fitted, where="the buffer", widens=True)
        self._widen(schema)
        return fitted

    def _fit(self, columns: Mapping[str, Array]) -> tuple[dict[str, Array], Schema]:
        """Return new columns and a schema that hold new and stored values exactly, where there are such."""
        fitted, fields = dict(columns), dict(self.schema)
        for name, column in columns.items():
            field = self.schema.get(name)
            kinds = "" if field is None else field.dtype.kind + column.dtype.kind
            if field is None or kinds not in _MIXED:
                continue
            asked = field.dtype if field.dtype.kind == _FLOAT else column.dtype
            for dtype in (asked, np.dtype(np.float64)):
                if _holds(dtype, column) and _holds(dtype, self._columns[name][: self.count]):
                    fitted[name], fields[name] = column.astype(dtype), Field(field.shape, dtype)
                    break
        return fitted, Schema(fields)

    def _widen(self, schema: Schema) -> None:
        """Keep columns in the dtypes of a schema from now on."""
        for name, field in schema.items():
            own = self._columns[name]
            if own.dtype != field.dtype:
                text = "column '%s' held %s and was pushed other values: it is kept as %s from now on, without a loss."
                logger.info(text, name, own.dtype, field.dtype)
                self._columns[name] = own.astype(field.dtype)
        self.schema = schema

    def _write(self, source: Mapping[str, Array], places: slice, part: slice | None) -> None:
        for name, own in self._columns.items():
            own[places] = source[name] if part is None else source[name][part]


class ObjectStorage(RingStorage):
    """Ring of Python objects of any kind, copied deeply: for data without columns."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._objects: list[Any] = [None] * capacity

    @property
    def num_bytes(self) -> int:
        # Estimated by the newest object: a walk through a million would cost too much.
        return self.count * _size_bytes(self._objects[self.next_row - 1])

    def gather(self, rows: Array) -> list[Any]:
        # One by one: an object that is drawn twice is copied twice.
        return [deepcopy(self._objects[row]) for row in rows.tolist()]

    def _accept(self, data: Rows) -> list[Any]:
        return deepcopy(list(data))

    def _write(self, source: list[Any], places: slice, part: slice | None) -> None:
        self._objects[places] = source if part is None else source[part]


def _size_bytes(value: Any) -> int:
    if isinstance(value, (Mapping, list, tuple)):
        return sum(map(_size_bytes, value.values() if isinstance(value, Mapping) else value))
    return int(getattr(value, "nbytes", 8))


class StreamStorage:
    """Rings [S, C] of `capacity` rows, one for each stream, in which rows that follow each other are neighbours.

    The stream of a row is its column `stream`, else `lane`, else `env_id`, else there is one stream. A row follows the
    one before it in its stream if it is the next `step` of the same `episode_id`; without these columns, if the one
    before did not end an episode. `serial` of a row is one more than that of the row before it if it follows that one,
    else two more: T rows are a window if the last one's is T - 1 more than the first one's. The oldest row's is less
    than the newest's, so no window crosses the ring's seam.
    """

    def __init__(self, capacity: int, schema: Schema, num_streams: int, *, may_widen: bool = False) -> None:
        self.schema = schema
        self._num_rows = capacity
        self._may_widen = may_widen  # make room for lanes that are new
        # Of the last `append`: where its rows lie and which they are, in any order, [N] each; and where rows that were
        # here before went from and to, [K] each, None if they stayed.
        self.written: tuple[Array, Array] = (np.arange(0), np.arange(0))
        self.moved: tuple[Array, Array] | None = None
        self._allocate(num_streams)

    def _allocate(self, num_streams: int) -> None:
        if num_streams > self._num_rows:
            raise SchemaError(f"{num_streams} streams need a buffer of as many rows at least, it has {self._num_rows}.")
        self.num_streams = num_streams
        self.ring_size = self._num_rows // num_streams
        self.capacity = self.ring_size * num_streams
        check_buffer_memory(self.capacity, self.schema.row_bytes)
        self._columns = self.schema.allocate(self.capacity)
        self.serial = np.full(self.capacity, -1, np.int64)  # less than that of any row
        self._next = np.zeros(num_streams, np.int64)
        self._set_counts(np.zeros(num_streams, np.int64))
        self.is_cut = np.ones(num_streams, bool)  # the next row of a stream follows none

    @staticmethod
    def streams_of(columns: Mapping[str, Array]) -> Array:
        """Return the stream of each row, int64 [B]."""
        for name in _STREAM_COLUMNS:
            if name in columns:
                return np.asarray(columns[name]).astype(np.int64)
        return np.zeros(len(next(iter(columns.values()))), np.int64)

    @property
    def num_bytes(self) -> int:
        """Approximate memory of the rows."""
        return self.count * (self.schema.row_bytes + self.serial.itemsize)

    def append(self, rows: Pushed) -> None:
        """Copy rows in, those of a stream in their order; of more than a ring holds, the last stay.

        Raises SchemaError, and changes nothing, if they do not fit what is stored.
        """
        columns = arrays_of(rows)
        self.schema.check(columns, where="the buffer")
        streams = self.streams_of(columns)
        self.moved = None
        if not len(streams):
            self.written = (np.arange(0), np.arange(0))
            return
        self._check_streams(streams)
        order = streams.argsort(kind="stable")
        streams = streams[order]
        added = np.bincount(streams, minlength=self.num_streams)
        first_of = added.cumsum() - added
        rank = np.arange(len(order)) - first_of[streams]
        serial = self._serials(columns, order, streams, rank)
        stays = rank >= added[streams] - self.ring_size
        order, streams, rank, serial = order[stays], streams[stays], rank[stays], serial[stays]
        places = streams * self.ring_size + (self._next[streams] + rank) % self.ring_size
        for name, own in self._columns.items():
            own[places] = columns[name][order]
        self.serial[places] = serial
        self.written = (places, order)
        self._next = (self._next + added) % self.ring_size
        self._set_counts(np.minimum(self.counts + added, self.ring_size))
        self.is_cut &= added == 0

    def _set_counts(self, counts: Array) -> None:
        """Store how many rows there are of each stream, and what `places_of` computes with."""
        self.counts = counts
        self._ends = counts.cumsum()
        self.count = int(self._ends[-1])
        # What a row's number must be shifted by so that, in its stream, row `_next` is the next one.
        self._shifts = self._next - self._ends

    def _check_streams(self, streams: Array) -> None:
        lowest, highest = int(streams.min()), int(streams.max())
        if lowest >= 0 and self.num_streams <= highest < self._num_rows and self._may_widen:
            self._widen(highest + 1)
        if lowest < 0 or highest >= self.num_streams:
            raise SchemaError(
                f"rows of lanes {lowest} to {highest} do not fit {self.num_streams} streams of a buffer of "
                f"{self._num_rows} rows; set num_streams of the buffer to the number of lanes."
            )

    def _widen(self, num_streams: int) -> None:
        """Make more streams and so smaller rings; the newest rows of each stay."""
        rows, serial, is_cut, before = self.dump(), self.serial[self.all_places()], self.is_cut, self.all_places()
        self._allocate(num_streams)
        self.append(TransitionBatch(rows))
        streams = self.streams_of(rows)
        self.load_serials(serial, streams)
        self.is_cut[: len(is_cut)] = is_cut
        self.moved = (before[self.found_room(streams)], self.all_places())

    def _serials(self, columns: Mapping[str, Array], order: Array, streams: Array, rank: Array) -> Array:
        """Return `serial` of new rows, sorted by stream."""
        last = streams * self.ring_size + (self._next[streams] - 1) % self.ring_size  # stored last, by stream
        is_first = rank == 0
        before = np.where(is_first, 0, np.arange(len(order)) - 1)

        def previous(name: str) -> Array:
            new = columns[name][order]
            return np.where(is_first, self._columns[name][last], new[before])

        if "episode_id" in columns and "step" in columns:
            is_same = previous("episode_id") == columns["episode_id"][order]
            follows = is_same & (previous("step") + 1 == columns["step"][order])
        else:
            follows = np.ones(len(order), bool)
            for name in _END_COLUMNS:
                if name in columns:
                    follows &= ~previous(name).astype(bool)
        follows &= ~(is_first & self.is_cut[streams])
        total = (2 - follows).cumsum()
        first = np.arange(len(order)) - rank  # of the same stream
        return total - total[first] + (2 - follows)[first] + self.serial[last]

    def cut(self) -> None:
        """Separate later rows from those stored."""
        self.is_cut[:] = True

    def all_places(self) -> Array:
        """Return the places of all rows, stream by stream, the oldest first; int64 [count]."""
        return self.places_of(np.arange(self.count))

    def places_of(self, index: Array) -> Array:
        """Return the places of rows numbered from 0, stream by stream, the oldest first; int64 [B]."""
        stream = self._ends.searchsorted(index, side="right")
        places: Array = (index + self._shifts.take(stream)) % self.ring_size
        places += stream * self.ring_size
        return places

    def newest(self, added: Array) -> Array:
        """Return the places of the newest `added[s]` rows of each stream s, fewer where there are not so many."""
        taken = np.minimum(added, self.counts)
        number = np.arange(int(taken.sum())) - np.repeat(taken.cumsum() - taken, taken)
        return self.places_of(np.repeat(self._ends - taken, taken) + number)

    def places_of_ages(self, ages: slice) -> Array:
        """Return the places of the rows of these ages in their streams, where the oldest has age 0."""
        start, stop, step = ages.indices(int(self.counts.max(initial=0)))
        age = np.arange(self.count) - np.repeat(self._ends - self.counts, self.counts)
        return self.all_places()[(age >= start) & (age < stop) & ((age - start) % step == 0)]

    def windows(self, first: Array, length: int) -> Array:
        """Return the places [B, T] of the windows that begin at places [B]."""
        places: Array = first[:, None] + np.arange(length)
        in_ring = first % self.ring_size
        crosses = np.flatnonzero(in_ring > self.ring_size - length)
        if len(crosses):
            start = (first - in_ring)[crosses, None]
            places[crosses] = start + (places[crosses] - start) % self.ring_size
        return places

    def are_in_run(self, places: Array) -> Array:
        """Return which rows of windows [B, T] follow their first row without a gap."""
        steps = np.arange(places.shape[1])
        serial = self.serial[places]
        return (serial == serial[:, :1] + steps) & (steps < self.ring_size)

    def begins_window(self, first: Array, length: int) -> Array:
        """Return which places [B] begin a window of `length` rows without a gap."""
        if length > self.ring_size:
            return np.zeros(len(first), bool)
        last = first + (length - 1)
        last -= self.ring_size * (first % self.ring_size > self.ring_size - length)
        is_window: Array = self.serial.take(last) - self.serial.take(first) == length - 1
        return is_window

    def num_following(self, places: Array, *, most: int, step: int = 1) -> Array:
        """Return how many rows follow each of places [B] without a gap, `most` at most; int64 [B].

        With `step=-1` it is how many come before. Found by bisection: where a row m steps on does not belong to the
        run, none beyond it does, for `serial` only rises and jumps at every gap.
        """
        most = min(most, self.ring_size - 1)
        in_ring = places % self.ring_size
        first, serial = places - in_ring, self.serial.take(places)
        reached = np.zeros(len(places), np.int64)
        stride = 1 << (max(most, 0).bit_length() - 1) if most > 0 else 0
        while stride:
            trial = reached + stride
            other = self.serial.take(first + (in_ring + step * trial) % self.ring_size)
            # Places that hold no row have -1, which may look like a run that begins there.
            reached += stride * ((other - serial == step * trial) & (other >= 0) & (trial <= most))
            stride >>= 1
        return reached

    def gather(self, places: Array) -> dict[str, Array]:
        """Return the columns at places of any shape [...], in fresh memory [..., ...]."""
        return {name: column.take(places, 0) for name, column in self._columns.items()}

    def take(self, name: str, places: Array) -> Array:
        """Return one column at places of any shape [...], in fresh memory [..., ...]."""
        return self._columns[name].take(places, 0)

    def dump(self) -> dict[str, Array]:
        """Return all rows stream by stream, oldest first, in fresh memory."""
        return self.gather(self.all_places())

    def load_serials(self, serial: Array, streams: Array) -> None:
        """Restore `serial` of all rows that were dumped [N], of which the newest of each stream are here."""
        self.serial[self.all_places()] = serial[self.found_room(streams)]

    def found_room(self, streams: Array) -> Array:
        """Return which of all rows that were dumped, of these streams [N], found room here; bool [N]."""
        dumped = np.bincount(streams, minlength=self.num_streams)
        age = np.arange(len(streams)) - (dumped.cumsum() - dumped)[streams]
        stays: Array = age >= dumped[streams] - self.ring_size
        return stays

    def state_dict(self) -> State:
        """Return the state of the rows beside their data, in the order of `dump`."""
        return {
            "serials": self.serial[self.all_places()],
            "is_cut": self.is_cut.copy(),
            "num_streams": self.num_streams,
            "ring_size": self.ring_size,
            "next": self._next.copy(),
        }

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned; the rows, `state["data"]`, were appended to an empty storage."""
        self.load_serials(state["serials"], self.streams_of(state["data"]))
        self.is_cut[:] = state["is_cut"]
        if state["ring_size"] != self.ring_size:
            return
        # Turn each ring until its next row lies where it lay.
        before = self.all_places()
        self._next = np.array(state["next"], np.int64)
        self._set_counts(self.counts)
        after = self.all_places()
        for own in self._columns.values():
            own[after] = own[before]
        serial = self.serial[before]
        self.serial.fill(-1)
        self.serial[after] = serial


_SLACK = 0.01  # frames beyond one a row that there is room for: those at the beginning of episodes
_GROWTH = 1.02
_CHUNK = 128  # rows stored at once: they may share frames, so none of them is dropped before the oldest of them
_MAX_STREAMS = 1024  # lanes that differ by this only take turns; then frames are shared less, and rows are as right
_NEXT = "next_"
_FRAMES = "stored frames of "  # begins the names of a dump's columns of frames


class FrameRing:
    """Ring of frames of one shape in order of arrival; new ones overwrite the oldest."""

    def __init__(self, num_rows: int, field: Field) -> None:
        self.stack = field.shape[0]
        self._shape = field.shape[1:]
        self._dtype = field.dtype
        # Of the frames of a stack and its next one, where that begins with the stack's second: all, each once.
        self._each_once = np.append(np.arange(self.stack), 2 * self.stack - 1)
        self._nbytes = int(np.prod(self._shape)) * field.dtype.itemsize
        check_buffer_memory(num_rows, self._nbytes)
        size = int(num_rows * (1 + _SLACK)) + 16 * self.stack
        self.frames = np.zeros((size, *self._shape), self._dtype)
        self.num_stored = 0  # ever
        # Of the last row of each stream: fingerprint and number of its frames [S, 2k]; number -1: none.
        self._last_prints = np.zeros((0, 2 * self.stack), np.uint64)
        self._last_numbers = np.zeros((0, 2 * self.stack), np.int64)
        words = -(-self._nbytes // 8)
        self._factors = np.random.default_rng(0).integers(1, 2**63, words, dtype=np.uint64) | np.uint64(1)

    def store(self, stacks: Array, streams: Array, oldest: int) -> Array:
        """Store the frames of `stacks` [B, 2, k, ...] that are not there yet; return the numbers of all, [B, 2k].

        `oldest` is the number of the oldest frame that a row still needs.
        """
        oldest = max(min(oldest, self.num_stored - self._reach), 0)  # new rows may point to recent frames
        flat = np.ascontiguousarray(stacks).reshape(len(stacks) * 2 * self.stack, *self._shape)
        prints = self._fingerprints(flat)
        is_recent = self._last_numbers.ravel() >= max(self.num_stored - self._reach, 0)
        known_prints, known = self._last_prints.ravel()[is_recent], self._last_numbers.ravel()[is_recent]
        _, first, inverse = np.unique(np.concatenate([known_prints, prints]), return_index=True, return_inverse=True)
        own = len(known) + np.arange(len(flat))  # which of the known frames and these, one after the other, each is
        source = self._compared(flat, first[inverse[len(known) :]], own, known)
        is_new = source == own
        numbers = np.append(known, self.num_stored + np.cumsum(is_new) - 1)[source].reshape(len(stacks), -1)
        new = flat[is_new]
        if self.num_stored + len(new) - oldest > len(self.frames):
            self._grow(self.num_stored + len(new) - oldest, oldest)
        self.frames[(self.num_stored + np.arange(len(new))) % len(self.frames)] = new
        self.num_stored += len(new)
        self._remember(streams, prints.reshape(len(stacks), -1), numbers)
        return numbers

    def _fingerprints(self, flat: Array) -> Array:
        """Return a number for each frame [N] uint64 that differs, almost surely, where frames do."""
        data = flat.reshape(len(flat), -1).view(np.uint8)
        if data.shape[1] % 8:
            data = np.pad(data, ((0, 0), (0, -data.shape[1] % 8)))
        prints: Array = np.ascontiguousarray(data).view(np.uint64) @ self._factors
        return prints

    @property
    def _reach(self) -> int:
        """How old, in frames, a frame may be that a new row points to; older ones are stored again."""
        return 4 * self.stack * max(len(self._last_numbers), 1)

    def _compared(self, flat: Array, source: Array, own: Array, known: Array) -> Array:
        """Return `source`, and a frame's own number where the frame with the same fingerprint has other pixels."""
        stored = np.flatnonzero(source < len(known))
        given = np.flatnonzero((source >= len(known)) & (source != own))
        is_other = np.zeros(len(flat), bool)
        for frames, originals in (
            (stored, self.frames[known[source[stored]] % len(self.frames)]),
            (given, flat[source[given] - len(known)]),
        ):
            is_other[frames] = (flat[frames] != originals).any(axis=tuple(range(1, flat.ndim)))
        return np.where(is_other, own, source)

    def _grow(self, needed: int, oldest: int) -> None:
        """Make room: rows share fewer frames than they do in one env's stream."""
        size = int(max(needed, len(self.frames)) * _GROWTH)
        logger.info("frames are shared less than expected: their memory grows to %.2f GB", size * self._nbytes / 1e9)
        bigger = np.zeros((size, *self._shape), self._dtype)
        for start in range(oldest, self.num_stored, 4096):
            numbers = np.arange(start, min(start + 4096, self.num_stored))
            bigger[numbers % size] = self.frames[numbers % len(self.frames)]
        self.frames = bigger

    def _remember(self, streams: Array, prints: Array, numbers: Array) -> None:
        highest = int(streams.max()) + 1
        if highest > len(self._last_numbers):
            missing = highest - len(self._last_numbers)
            self._last_prints = np.pad(self._last_prints, ((0, missing), (0, 0)))
            self._last_numbers = np.pad(self._last_numbers, ((0, missing), (0, 0)), constant_values=-1)
        # Of a stream's rows the last assignment stays: the newest.
        self._last_prints[streams] = prints
        self._last_numbers[streams] = numbers

    def gather(self, numbers: Array) -> Array:
        """Return the stacks [B, k, ...] of frames [B, k], in fresh memory."""
        size = len(self.frames)
        frames = take_rows({"frames": self.frames}, (numbers % size).ravel(), size)["frames"]
        return frames.reshape(*numbers.shape, *self._shape)

    def gather_pairs(self, numbers: Array) -> tuple[Array, Array]:
        """Return (stacks, next stacks) [B, k, ...] of frames [B, 2k].

        Where every next stack begins with the second frame of its stack, both are views of one array [B, k + 1, ...]:
        copying frames is most of the work of a sample.
        """
        k = self.stack
        if not (numbers[:, 1:k] == numbers[:, k:-1]).all():
            return self.gather(numbers[:, :k]), self.gather(numbers[:, k:])
        frames = self.gather(numbers.take(self._each_once, 1))
        return frames[:, :k], frames[:, 1:]


class FrameStorage(ColumnStorage):
    """Column storage whose columns X and next_X of shape [k, ...] are kept as frames, each once."""

    def __init__(self, capacity: int, schema: Schema, frame_stack: int) -> None:
        pairs = [
            name
            for name, field in schema.items()
            if _NEXT + name in schema and len(field.shape) >= 2 and field.shape[0] == frame_stack
        ]
        if not pairs:
            raise ConfigError(
                f"frame_stack is {frame_stack}, but no observation is a stack [{frame_stack}, ...] of frames: {schema}."
            )
        self._frame_columns = {*pairs, *(_NEXT + name for name in pairs)}
        self._full_schema = schema
        rest = {name: field for name, field in schema.items() if name not in self._frame_columns}
        for name in pairs:
            rest[_numbers_of(name)] = Field((2 * frame_stack,), np.dtype(np.int64))
        super().__init__(capacity, Schema(rest))
        self._rings = {name: FrameRing(capacity, schema[name]) for name in pairs}

    @property
    def num_bytes(self) -> int:
        """The memory of rows and of all room for frames."""
        frames = sum(ring.frames.nbytes for ring in self._rings.values())
        return self.count * self.schema.row_bytes + frames * self.count // max(self.capacity, 1)

    def append(self, data: Pushed) -> None:
        """Copy rows in; of more than `capacity`, only the last stay. Raises SchemaError if they do not fit."""
        columns, schema = self._fit(arrays_of(data))
        kept = {name: field for name, field in schema.items() if name in self._full_schema}
        full = Schema({**self._full_schema, **kept})
        full.check(columns, where="the buffer")
        self._full_schema = full
        self._widen(schema)
        first = max(len(data) - self.capacity, 0)
        for start in range(first, len(data), _CHUNK):
            self._append_chunk({name: column[start : start + _CHUNK] for name, column in columns.items()})

    def _append_chunk(self, columns: Mapping[str, Array]) -> None:
        rows = {name: column for name, column in columns.items() if name not in self._frame_columns}
        streams = StreamStorage.streams_of(columns) % _MAX_STREAMS
        for name, ring in self._rings.items():
            stacks = np.stack([columns[name], columns[_NEXT + name]], axis=1)
            rows[_numbers_of(name)] = ring.store(stacks, streams, self._oldest(name, len(streams)))
        super().append(TransitionBatch(rows))

    def _oldest(self, name: str, num_new: int) -> int:
        """Return the number of the oldest frame that a row needs which stays when `num_new` more are pushed."""
        stays = min(self.count, self.capacity - num_new)
        if stays <= 0:
            return self._rings[name].num_stored
        # Rows point to frames of their chunk, or to ones at most `_reach` old when it was pushed: no row has older
        # frames than those of the chunk of the oldest row, but for that.
        oldest_rows = self.rows(self.count - stays + np.arange(min(stays, _CHUNK)))
        reach = self._rings[name]._reach
        return max(int(self._columns[_numbers_of(name)][oldest_rows].min()) - reach, 0)

    def gather(self, rows: Array) -> TransitionBatch:
        """Return rows with their stacks, in fresh memory; stacks and next stacks may share what both show."""
        columns = take_rows(self._columns, rows, self.capacity)
        for name, ring in self._rings.items():
            columns[name], columns[_NEXT + name] = ring.gather_pairs(columns.pop(_numbers_of(name)))
        return TransitionBatch.of_length(len(rows), {name: columns[name] for name in self._full_schema})

    def dump(self) -> dict[str, Array]:
        """Return rows, oldest first, and the frames they need, each once, in fresh memory."""
        rows = self.all_places()
        columns = {name: column.take(rows, 0) for name, column in self._columns.items()}
        for name, ring in self._rings.items():
            numbers, inverse = np.unique(columns[_numbers_of(name)], return_inverse=True)
            columns[_numbers_of(name)] = inverse.reshape(self.count, 2 * ring.stack)
            columns[_FRAMES + name] = ring.gather(numbers)
        return columns


def rows_of_dump(dump: Mapping[str, Array], *, chunk: int = 1024) -> Iterator[TransitionBatch]:
    """Yield the rows of dumped columns; those of a `FrameStorage` with their stacks, in chunks."""
    stacked = [name.removeprefix(_FRAMES) for name in dump if name.startswith(_FRAMES)]
    if not stacked:
        yield TransitionBatch(dump)
        return
    plain = [name for name in dump if not name.startswith(_FRAMES) and name not in map(_numbers_of, stacked)]
    count = len(dump[_numbers_of(stacked[0])])
    for start in range(0, count, chunk):
        part = slice(start, start + chunk)
        columns = {name: dump[name][part] for name in plain}
        for name in stacked:
            numbers = dump[_numbers_of(name)][part]
            half = numbers.shape[1] // 2
            columns[name] = dump[_FRAMES + name].take(numbers[:, :half], 0)
            columns[_NEXT + name] = dump[_FRAMES + name].take(numbers[:, half:], 0)
        yield TransitionBatch(columns)


def _numbers_of(name: str) -> str:
    return f"frames of {name}"
