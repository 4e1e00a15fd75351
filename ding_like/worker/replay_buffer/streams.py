"""Keep rows of several streams (lanes) apart, each in a ring of its own, so that neighbours in time are neighbours."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ding_like.data.batch import TransitionBatch
from ding_like.data.schema import Schema
from ding_like.errors import SchemaError
from ding_like.types import Array, State
from ding_like.utils.machine import check_buffer_memory

STREAM = "stream"  # a column of a store that knows better than the lanes' numbers which rows follow each other
_STREAM_COLUMNS = (STREAM, "lane", "env_id")
_END_COLUMNS = ("done", "terminated", "truncated")


class StreamStorage:
    """Keep `capacity` rows in S rings [S, C], one for each stream, and know which rows follow each other.

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
        """Return about how much memory the rows take."""
        return self.count * (self.schema.row_bytes + self.serial.itemsize)

    def append(self, rows: TransitionBatch) -> None:
        """Copy rows in, those of a stream in their order; of more than a ring holds, the last stay.

        Raises SchemaError, and changes nothing, if they do not fit what is stored.
        """
        columns = {name: np.asarray(column) for name, column in rows.columns.items()}
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
        """Note how many rows there are of each stream, and what `places_of` needs to know about it."""
        self.counts = counts
        self._ends = counts.cumsum()
        self.count = int(self._ends[-1])
        # What a row's number must be shifted by so that, in its stream, row `_next` is the one that comes next.
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
        """Go over to more streams and so to smaller rings; the newest rows of each stay."""
        rows, serial, is_cut, before = self.dump(), self.dump_serials(), self.is_cut, self.all_places()
        self._allocate(num_streams)
        self.append(rows)
        streams = self.streams_of(rows.columns)
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
        """Let no row that comes follow one that is here."""
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

    def ages(self) -> Array:
        """Return the age of all rows in their streams (0: the oldest), in the order of `all_places`."""
        return np.arange(self.count) - np.repeat(self.counts.cumsum() - self.counts, self.counts)

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
        """Tell which rows of windows [B, T] follow their first row without a gap."""
        steps = np.arange(places.shape[1])
        serial = self.serial[places]
        return (serial == serial[:, :1] + steps) & (steps < self.ring_size)

    def begins_window(self, first: Array, length: int) -> Array:
        """Tell which places [B] begin a window of `length` rows without a gap."""
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
            # Places that hold no row have -1, which may be in the way of a run that begins there.
            reached += stride * ((other - serial == step * trial) & (other >= 0) & (trial <= most))
            stride >>= 1
        return reached

    def gather(self, places: Array) -> dict[str, Array]:
        """Return the columns at places of any shape [...], in fresh memory [..., ...]."""
        return {name: column.take(places, 0) for name, column in self._columns.items()}

    def take(self, name: str, places: Array) -> Array:
        """Return one column at places of any shape [...], in fresh memory [..., ...]."""
        return self._columns[name].take(places, 0)

    def dump(self) -> TransitionBatch:
        """Return all rows stream by stream, oldest first, in fresh memory."""
        return TransitionBatch(self.gather(self.all_places()))

    def dump_serials(self) -> Array:
        """Return `serial` of all rows, in the order of `dump`."""
        return self.serial[self.all_places()]

    def load_serials(self, serial: Array, streams: Array) -> None:
        """Take over `serial` of all rows that were dumped [N], of which the newest of each stream are here."""
        self.serial[self.all_places()] = serial[self.found_room(streams)]

    def found_room(self, streams: Array) -> Array:
        """Tell which of all rows that were dumped, of these streams [N], found room here; bool [N]."""
        dumped = np.bincount(streams, minlength=self.num_streams)
        age = np.arange(len(streams)) - (dumped.cumsum() - dumped)[streams]
        stays: Array = age >= dumped[streams] - self.ring_size
        return stays

    def state_dict(self) -> State:
        """Return what is known of the rows beside their data, in the order of `dump`."""
        return {
            "serials": self.dump_serials(),
            "is_cut": self.is_cut.copy(),
            "num_streams": self.num_streams,
            "ring_size": self.ring_size,
            "next": self._next.copy(),
        }

    def load_state_dict(self, state: State) -> None:
        """Take over what `state_dict` returned; the rows, `state["data"]`, were appended to an empty storage."""
        self.load_serials(state["serials"], self.streams_of(state["data"]))
        self.is_cut[:] = state["is_cut"]
        if state.get("ring_size") == self.ring_size:  # absent from states saved before there were priorities
            self._turn(state["next"])

    def _turn(self, next_rows: Array) -> None:
        """Turn each ring until the next row of stream s comes to `next_rows[s]`."""
        before = self.all_places()
        self._next = np.array(next_rows, np.int64)
        self._set_counts(self.counts)
        after = self.all_places()
        for own in self._columns.values():
            own[after] = own[before]
        serial = self.serial[before]
        self.serial.fill(-1)
        self.serial[after] = serial
