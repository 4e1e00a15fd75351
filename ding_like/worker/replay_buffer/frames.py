"""Storage of stacked frames with every frame stored once: rows point to the frames of their `obs` and `next_obs`.

Frames are recognised by their content: a stack that does not continue the last row of its stream is made of new
frames. So padding of any kind at a reset, n-step rows and dropped rows need no rules.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ding_like.data.batch import TransitionBatch
from ding_like.data.compiled import take_rows
from ding_like.data.schema import Field, Schema
from ding_like.errors import ConfigError
from ding_like.types import Array
from ding_like.utils.machine import check_buffer_memory
from ding_like.worker.replay_buffer.storage import ColumnStorage, Rows, StreamStorage

logger = logging.getLogger(__name__)

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
        num_rows = len(stacks)
        oldest = min(oldest, self.num_stored - self._reach)  # new rows may point to what `_recent` gives
        flat = np.ascontiguousarray(stacks).reshape(num_rows * 2 * self.stack, *self._shape)
        prints = self._fingerprints(flat)
        known_prints, known_numbers = self._recent()
        _, first, inverse = np.unique(np.concatenate([known_prints, prints]), return_index=True, return_inverse=True)
        source = first[inverse[len(known_prints) :]]  # where each frame was first seen
        is_known = source < len(known_prints)
        source_in_batch = np.where(is_known, 0, source - len(known_prints))
        self._tell_apart(flat, source, is_known, source_in_batch, known_numbers)
        is_new = ~is_known & (source_in_batch == np.arange(len(flat)))
        numbers_of_new = self.num_stored + np.cumsum(is_new) - 1
        numbers = np.where(is_known, known_numbers[np.where(is_known, source, 0)] if len(known_numbers) else 0, 0)
        numbers = np.where(is_known, numbers, numbers_of_new[source_in_batch])
        self._write(flat[is_new], oldest)
        numbers = numbers.reshape(num_rows, 2 * self.stack)
        self._remember(streams, prints.reshape(num_rows, -1), numbers)
        return numbers

    def _fingerprints(self, flat: Array) -> Array:
        """Return a number for each frame [N] uint64 that differs, almost surely, where frames do."""
        data = flat.reshape(len(flat), -1).view(np.uint8)
        if data.shape[1] % 8:
            data = np.pad(data, ((0, 0), (0, -data.shape[1] % 8)))
        prints: Array = np.ascontiguousarray(data).view(np.uint64) @ self._factors
        return prints

    def _recent(self) -> tuple[Array, Array]:
        """Return fingerprints and numbers of the frames that new rows may continue."""
        young = self._last_numbers.ravel() >= max(self.num_stored - self._reach, 0)
        return self._last_prints.ravel()[young], self._last_numbers.ravel()[young]

    @property
    def _reach(self) -> int:
        """How old, in frames, a frame may be that a new row points to; older ones are stored again."""
        return 4 * self.stack * max(len(self._last_numbers), 1)

    def _tell_apart(
        self, flat: Array, source: Array, is_known: Array, source_in_batch: Array, known_numbers: Array
    ) -> None:
        """Make frames new, in place, whose fingerprint is that of another frame that looks different."""
        same = np.ones(len(flat), bool)
        known = np.flatnonzero(is_known)
        if len(known):
            there = self.frames[known_numbers[source[known]] % len(self.frames)]
            same[known] = (flat[known] == there).reshape(len(known), -1).all(axis=1)
        inside = np.flatnonzero(~is_known & (source_in_batch != np.arange(len(flat))))
        if len(inside):
            same[inside] = (flat[inside] == flat[source_in_batch[inside]]).reshape(len(inside), -1).all(axis=1)
        differ = np.flatnonzero(~same)
        is_known[differ] = False
        source_in_batch[differ] = differ

    def _write(self, new: Array, oldest: int) -> None:
        oldest = max(oldest, 0)
        if self.num_stored + len(new) - oldest > len(self.frames):
            self._grow(self.num_stored + len(new) - oldest, oldest)
        places = (self.num_stored + np.arange(len(new))) % len(self.frames)
        self.frames[places] = new
        self.num_stored += len(new)

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

    def append(self, data: Rows) -> None:
        """Copy rows in; of more than `capacity`, only the last stay. Raises SchemaError if they do not fit."""
        assert isinstance(data, TransitionBatch), "frames come in columns"
        columns, schema = self._fit({name: np.asarray(column) for name, column in data.columns.items()})
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

    def dump_frames(self) -> dict[str, Array]:
        """Return rows, oldest first, and the frames they need, each once, in fresh memory."""
        rows = self.rows(np.arange(self.count))
        columns = {name: column.take(rows, 0) for name, column in self._columns.items()}
        for name, ring in self._rings.items():
            numbers, inverse = np.unique(columns[_numbers_of(name)], return_inverse=True)
            columns[_numbers_of(name)] = inverse.reshape(self.count, 2 * ring.stack)
            columns[_FRAMES + name] = ring.gather(numbers)
        return columns


def rows_of_dump(dump: Mapping[str, Array], *, chunk: int = 1024) -> Iterator[TransitionBatch] | None:
    """Yield the rows that `dump_frames` returned, with their stacks, in chunks; None for a dump of another kind."""
    stacked = [name.removeprefix(_FRAMES) for name in dump if name.startswith(_FRAMES)]
    return _rows_of(dump, stacked, chunk) if stacked else None


def _rows_of(dump: Mapping[str, Array], stacked: Sequence[str], chunk: int) -> Iterator[TransitionBatch]:
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
