"""Mirror of the rows that a coordinator's index numbers, so that a batch is one gather."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ding_like.comm.rest.messages import ROWS_PER_SEGMENT, NewSegment
from ding_like.data.batch import TransitionBatch
from ding_like.data.schema import Schema
from ding_like.errors import CommError
from ding_like.types import Array

_FIRST_ROWS = 1024  # of a mirror that grows


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

    def take_in(self, segment: NewSegment, columns: Mapping[str, Array]) -> None:
        """Copy a segment's rows to their places. Raises SchemaError if they do not fit those that are there."""
        self._check(columns)
        self._grow(segment)
        first = segment.first_row
        head = min(segment.rows, self.size - first)  # rows before the ring's end
        for name, own in self._columns.items():
            own[first : first + head] = columns[name][:head]
            own[: segment.rows - head] = columns[name][head:]
        unique_ids = segment.serial * ROWS_PER_SEGMENT + np.arange(segment.rows, dtype=np.int64)
        self._unique_ids[first : first + head] = unique_ids[:head]
        self._unique_ids[: segment.rows - head] = unique_ids[head:]
        self.last_serial = segment.serial

    def take_late(self, segment: NewSegment, columns: Mapping[str, Array]) -> None:
        """Copy the rows of a segment that was skipped, but for those whose places newer segments have taken."""
        self._check(columns)
        self._grow(segment)
        places = (segment.first_row + np.arange(segment.rows)) % self.size
        unique_ids = segment.serial * ROWS_PER_SEGMENT + np.arange(segment.rows, dtype=np.int64)
        is_free = self._unique_ids[places] < unique_ids
        for name, own in self._columns.items():
            own[places[is_free]] = columns[name][is_free]
        self._unique_ids[places[is_free]] = unique_ids[is_free]

    def _check(self, columns: Mapping[str, Array]) -> None:
        if self._schema is None:
            self._schema = Schema.of(columns)
            self._columns = self._schema.allocate(self._room)
        self._schema.check(columns, where="the learner's mirror")

    def _grow(self, segment: NewSegment) -> None:
        """Take memory for the places of a segment: twice as much as there is, as often as it must be."""
        needed = min(segment.first_row + segment.rows, self.size)
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

    def skip(self, segment: NewSegment) -> None:
        """Leave out a segment that cannot be read: no batch can hold its rows."""
        self._grow(segment)
        places = (segment.first_row + np.arange(segment.rows)) % self.size
        self._unique_ids[places] = -1
        self.last_serial = segment.serial

    def are_there(self, places: Array, unique_ids: Array) -> Array:
        """Tell which of these rows are still, or already, at their places; bool [B]."""
        are_there: Array = self._unique_ids[places] == unique_ids
        return are_there

    def gather(self, places: Array) -> TransitionBatch:
        """Return rows in fresh memory. Raises CommError before the first segment has come."""
        if self.last_serial == 0:
            raise CommError("a batch was asked of a mirror that has no rows yet.")
        return TransitionBatch({name: column.take(places, 0) for name, column in self._columns.items()})
