"""Keep rows of several streams (lanes) apart, each in a ring of its own, so that neighbours in time are neighbours."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ding_like.data.batch import TransitionBatch
from ding_like.data.schema import Schema
from ding_like.errors import SchemaError
from ding_like.types import Array

_STREAM_COLUMNS = ("lane", "env_id")
_END_COLUMNS = ("done", "terminated", "truncated")


class StreamStorage:
    """Keep `capacity` rows in S rings [S, C]; `run[s, p]` counts the rows that lead up to a row without a gap.

    The stream of a row is its column `lane`, else `env_id`, else there is one stream. A row follows the one before it
    in its stream if it is the next `step` of the same `episode_id`; without these columns, if the one before did not
    end an episode.
    """

    def __init__(self, capacity: int, schema: Schema, num_streams: int) -> None:
        if num_streams > capacity:
            raise SchemaError(f"{num_streams} streams need a buffer of as many rows at least, it has {capacity}.")
        self.schema = schema
        self.num_streams = num_streams
        self.ring_size = capacity // num_streams
        self.capacity = self.ring_size * num_streams
        self._columns = schema.allocate(num_streams * self.ring_size)
        self.run = np.zeros(num_streams * self.ring_size, np.int64)
        self.counts = np.zeros(num_streams, np.int64)
        self._next = np.zeros(num_streams, np.int64)
        self.is_cut = np.ones(num_streams, bool)  # the next row of a stream follows none

    @staticmethod
    def streams_of(columns: Mapping[str, Array]) -> Array:
        """Return the stream of each row, int64 [B]."""
        for name in _STREAM_COLUMNS:
            if name in columns:
                return np.asarray(columns[name]).astype(np.int64)
        return np.zeros(len(next(iter(columns.values()))), np.int64)

    @property
    def count(self) -> int:
        """Return how many rows there are."""
        return int(self.counts.sum())

    @property
    def num_bytes(self) -> int:
        """Return about how much memory the rows take."""
        return self.count * (self.schema.row_bytes + self.run.itemsize)

    def append(self, rows: TransitionBatch) -> None:
        """Copy rows in, those of a stream in their order; of more than a ring holds, the last stay.

        Raises SchemaError, and changes nothing, if they do not fit what is stored.
        """
        columns = {name: np.asarray(column) for name, column in rows.columns.items()}
        self.schema.check(columns, where="the buffer")
        streams = self.streams_of(columns)
        if len(streams) and (streams.min() < 0 or streams.max() >= self.num_streams):
            raise SchemaError(
                f"rows of lanes {int(streams.min())} to {int(streams.max())} do not fit {self.num_streams} streams; "
                "set num_streams of the buffer to the number of lanes."
            )
        order = streams.argsort(kind="stable")
        streams = streams[order]
        added = np.bincount(streams, minlength=self.num_streams)
        first_of = added.cumsum() - added
        rank = np.arange(len(order)) - first_of[streams]
        run = self._runs(columns, order, streams, rank)
        stays = rank >= added[streams] - self.ring_size
        order, streams, rank, run = order[stays], streams[stays], rank[stays], run[stays]
        places = streams * self.ring_size + (self._next[streams] + rank) % self.ring_size
        for name, own in self._columns.items():
            own[places] = columns[name][order]
        self.run[places] = run
        self._next = (self._next + added) % self.ring_size
        self.counts = np.minimum(self.counts + added, self.ring_size)
        self.is_cut &= added == 0

    def _runs(self, columns: Mapping[str, Array], order: Array, streams: Array, rank: Array) -> Array:
        """Return `run` of new rows, sorted by stream: 1 where a row follows none, else one more than the row before."""
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
        # A run that begins here counts from 1; one that goes on from what is stored counts on.
        starts = np.flatnonzero(~follows | is_first)
        base = np.where(follows[starts], self.run[last[starts]], 0)
        lengths = np.diff(np.append(starts, len(order)))
        return np.arange(len(order)) - np.repeat(starts, lengths) + np.repeat(base, lengths) + 1

    def cut(self) -> None:
        """Let no row that comes follow one that is here."""
        self.is_cut[:] = True

    def place_of(self, index: Array) -> tuple[Array, Array]:
        """Return (stream, age) of rows numbered from 0: stream by stream, the oldest first; int64 [B] each."""
        ends = self.counts.cumsum()
        stream = ends.searchsorted(index, side="right")
        return stream, index - (ends - self.counts)[stream]

    def windows(self, stream: Array, age: Array, length: int) -> Array:
        """Return the places [B, T] of the windows that begin at rows [B]."""
        first = self._next[stream] - self.counts[stream] + age
        inside = first[:, None] + np.arange(length)
        inside %= self.ring_size
        inside += stream[:, None] * self.ring_size
        return inside

    def are_in_run(self, places: Array, stream: Array, age: Array) -> Array:
        """Tell which rows of windows [B, T] follow their first row without a gap; those after the newest do not."""
        steps = np.arange(places.shape[1])
        run = self.run[places]
        return (run == run[:, :1] + steps) & (age[:, None] + steps < self.counts[stream][:, None])

    def begins_window(self, stream: Array, age: Array, length: int) -> Array:
        """Tell which rows [B] begin a window of `length` rows without a gap."""
        start = stream * self.ring_size
        first = self._next[stream] - self.counts[stream] + age
        run_first = self.run[start + first % self.ring_size]
        run_last = self.run[start + (first + length - 1) % self.ring_size]
        return (age + length <= self.counts[stream]) & (run_last == run_first + length - 1)

    def gather(self, places: Array) -> dict[str, Array]:
        """Return the columns at places of any shape [...], in fresh memory [..., ...]."""
        return {name: column.take(places, 0) for name, column in self._columns.items()}

    def dump(self) -> TransitionBatch:
        """Return all rows stream by stream, oldest first, in fresh memory."""
        return TransitionBatch(self.gather(self._all_places()))

    def dump_runs(self) -> Array:
        """Return `run` of all rows, in the order of `dump`."""
        return self.run[self._all_places()]

    def load_runs(self, run: Array) -> None:
        """Take over `run` of all rows, in the order of `dump`."""
        self.run[self._all_places()] = run

    def _all_places(self) -> Array:
        stream, age = self.place_of(np.arange(self.count))
        return stream * self.ring_size + (self._next[stream] - self.counts[stream] + age) % self.ring_size
