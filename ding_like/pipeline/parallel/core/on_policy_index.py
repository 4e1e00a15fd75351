"""Number the segments of an on-policy batch: each row is learned from once, in the order in which it came."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from ding_like.comm.rest.messages import ROWS_PER_SEGMENT, Batches, NewSegment, SegmentInfo
from ding_like.comm.rest.refusal import RefusedError
from ding_like.pipeline.parallel.core.index import SegmentEntry, entry_of, joined
from ding_like.types import Array


class OnPolicyIndex:
    """Collect `batch_rows` rows for the learner's mirror of `size` rows, which must hold two batches and more.

    With `batch_segments` a batch is so many segments, of whole episodes, and the rows of each batch begin at the start
    of the mirror: the learner has drawn the batch before.
    """

    def __init__(self, size: int, batch_rows: int, *, batch_segments: int = 0) -> None:
        if size < 2 * batch_rows:
            raise ValueError(f"a mirror of {size} rows does not hold two batches of {batch_rows}")
        self.size = size
        self.batch_rows = batch_rows
        self._batch_segments = batch_segments
        self.num_rows = 0  # ever
        self.next_serial = 1
        self.used_up_to = 0  # serial of the last segment that was handed out or dropped
        self._waiting: deque[SegmentEntry] = deque()

    def number(self, info: SegmentInfo) -> SegmentEntry:
        """Return the entry that a new segment will have. Raises RefusedError for one that can never fit."""
        limit = self.size - self.count if self._batch_segments else self.batch_rows
        return entry_of(info, serial=self.next_serial, first_row=self.num_rows, limit=limit)

    def add(self, entry: SegmentEntry) -> list[SegmentEntry]:
        """Take a numbered segment in; none has to give way to it."""
        self._waiting.append(entry)
        self.next_serial = entry.serial + 1
        self.num_rows = entry.first_row + entry.rows
        return []

    @property
    def count(self) -> int:
        """Return how many rows wait to be learned from."""
        return sum(entry.rows for entry in self._waiting)

    @property
    def filled(self) -> int:
        """Return how much of a batch waits: rows, or segments where these make it up."""
        return len(self._waiting) if self._batch_segments else self.count

    @property
    def is_full(self) -> bool:
        """Tell whether a batch waits to be learned from."""
        return self.filled >= (self._batch_segments or self.batch_rows)

    def has_place(self, entry: SegmentEntry) -> bool:
        """Tell whether a segment belongs to the batch that is waited for."""
        if self._batch_segments:
            return not self.is_full
        return self.count + entry.rows <= self.batch_rows

    def draw(self, batch_size: int, learner_iter: int) -> Batches | None:
        """Return all waiting rows as one batch.

        Raises RefusedError if the learner wants another number of rows, where the number is fixed.
        """
        if batch_size != self.batch_rows and not self._batch_segments:
            raise RefusedError("malformed", f"an on-policy batch has {self.batch_rows} rows, not {batch_size}")
        places = [(entry.first_row + np.arange(entry.rows, dtype=np.int64)) % self.size for entry in self._waiting]
        unique_ids = [
            entry.serial * ROWS_PER_SEGMENT + np.arange(entry.rows, dtype=np.int64) for entry in self._waiting
        ]
        return Batches(1, np.concatenate(places), np.concatenate(unique_ids), None)

    def join(self, drawn: Sequence[Batches]) -> Batches | None:
        """Return batches as one message; None for no batches."""
        return joined(drawn)

    def clear(self) -> list[SegmentEntry]:
        """Forget the waiting rows: they were handed out, or came to nothing; return their segments."""
        gone = list(self._waiting)
        self._waiting.clear()
        self.used_up_to = self.next_serial - 1
        if self._batch_segments:
            self.num_rows = 0
        return gone

    def plain(self) -> dict[str, int]:
        """Return what is saved beside the segments: numbers go on even where none is left."""
        return {"next_serial": self.next_serial, "num_rows": self.num_rows, "used_up_to": self.used_up_to}

    def load(self, plain: dict[str, int]) -> None:
        """Take over what `plain` returned, after the segments that still wait were added."""
        self.next_serial, self.num_rows = plain["next_serial"], plain["num_rows"]
        self.used_up_to = plain["used_up_to"]

    def set_priorities(self, places: Array, unique_ids: Array, priorities: Array) -> int:
        """Refuse: each row is learned from once."""
        raise RefusedError("malformed", "rows of an on-policy run have no priorities")

    def quarantine(self, name: str) -> SegmentEntry | None:
        """Do nothing: the learner puts other rows of the batch in place of those it cannot read."""
        return None

    def new_segments(self, after_serial: int, limit: int) -> tuple[NewSegment, ...]:
        """Return waiting segments with a serial above `after_serial`, the oldest first."""
        news = [entry for entry in self._waiting if entry.serial > after_serial][:limit]
        return tuple(entry.to_news(self.size) for entry in news)

    def close(self) -> None:
        """Hold nothing."""
