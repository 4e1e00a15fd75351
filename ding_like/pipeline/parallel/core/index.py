"""Indices of the coordinator's buffers: they number segments and draw row numbers; the rows are at the learner."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from ding_like.comm.rest.messages import MAX_FILE, ROWS_PER_SEGMENT, Batches, NewSegment, SegmentInfo
from ding_like.comm.rest.refusal import RefusedError
from ding_like.comm.rest.wire import MAX_COUNT
from ding_like.data.batch import TransitionBatch
from ding_like.types import Array
from ding_like.worker import IBuffer

_MAX_HASH = 64  # characters: SHA-256 in hex


@dataclass(frozen=True)
class SegmentEntry:
    """One segment in the index; it is one row of the saved state."""

    serial: int
    name: str
    rows: int
    first_row: int  # counted over all segments, never modulo
    policy_version: int
    env_steps: int
    sha256: str
    nbytes: int
    is_bad: bool = False  # its file cannot be read


class _Segments:
    """Numbered segments with rows to draw, oldest first; their rows follow each other in a mirror of `size` rows."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.num_rows = 0  # ever
        self.next_serial = 1
        self._live: deque[SegmentEntry] = deque()
        self._bad: set[int] = set()  # serials of live segments whose files cannot be read

    @property
    def _most_rows(self) -> int:
        """Number of rows that the next segment may have."""
        return self.size

    def number(self, info: SegmentInfo) -> SegmentEntry:
        """Return the entry that a new segment will have. Raises RefusedError for one that can never fit."""
        limits = {
            "rows": (1, min(self._most_rows, ROWS_PER_SEGMENT)),
            "env_steps": (0, MAX_COUNT - 1),
            "policy_version": (0, MAX_COUNT - 1),
            "policy_attempt": (0, MAX_COUNT - 1),
            "nbytes": (1, MAX_FILE),
        }
        for name, (least, most) in limits.items():
            if not least <= (value := getattr(info, name)) <= most:
                raise RefusedError("schema", f"segment {info.name} has {name} {value}; expected {least} to {most}")
        if len(info.sha256) > _MAX_HASH:
            raise RefusedError("schema", f"segment {info.name} has a hash of {len(info.sha256)} characters")
        return SegmentEntry(
            self.next_serial, info.name, info.rows, self.num_rows, info.policy_version, info.env_steps, info.sha256,
            info.nbytes,
        )  # fmt: skip

    def add(self, entry: SegmentEntry) -> list[SegmentEntry]:
        """Take a numbered segment in; return those that have no row left."""
        self._live.append(entry)
        self.next_serial = entry.serial + 1
        self.num_rows = entry.first_row + entry.rows
        return []

    def new_segments(self, after_serial: int, limit: int) -> tuple[NewSegment, ...]:
        """Return segments with a serial above `after_serial`, the oldest first."""
        start = max(after_serial - self._live[0].serial + 1, 0) if self._live else 0  # serials follow each other
        return tuple(
            NewSegment(each.serial, each.name, each.rows, each.first_row % self.size, each.sha256, each.nbytes)
            for each in islice(self._live, start, start + limit)
        )

    def join(self, drawn: Sequence[Batches]) -> Batches | None:
        """Return batches as one message, others in place of rows whose files cannot be read; None for no batches."""
        if not drawn:
            return None
        places, unique_ids = (
            np.concatenate([getattr(each, name) for each in drawn]) for name in ("places", "unique_ids")
        )
        weights = None if drawn[0].weights is None else np.concatenate([each.weights for each in drawn])
        if self._bad:
            is_bad = np.isin(unique_ids // ROWS_PER_SEGMENT, list(self._bad))
            good, every = np.flatnonzero(~is_bad), np.arange(len(is_bad))
            chosen = np.where(is_bad, good[every % len(good)], every) if len(good) else every
            places, unique_ids = places[chosen], unique_ids[chosen]
            weights = None if weights is None else weights[chosen]
        return Batches(sum(each.num_batches for each in drawn), places, unique_ids, weights)

    def quarantine(self, name: str) -> SegmentEntry | None:
        """Never draw a segment's rows again; return it, None if it is not there or was reported before."""
        return None

    def close(self) -> None:
        """Close the buffer, if there is one."""


class BufferIndex(_Segments):
    """Index of a replay buffer of `size` rows: one of our buffers, whose rows hold numbers in place of data.

    Rows follow each other in order of serial, modulo `size`, as in the learner's mirror.
    """

    def __init__(self, buffer: IBuffer, size: int) -> None:
        super().__init__(size)
        self._buffer = buffer
        self._base: int | None = None  # number of the first row that was pushed since the start of this process
        self._unique_ids = np.full(size, -1, np.int64)
        # Segments are small and many: the buffer gets their rows together, when it is asked for some.
        self._pending: list[SegmentEntry] = []
        self._pending_rows = 0

    def add(self, entry: SegmentEntry) -> list[SegmentEntry]:
        """Take a numbered segment in; return those that have no row left."""
        if self._pending_rows + entry.rows > self.size:  # a push may not overwrite its own rows
            self._push()
        self._pending.append(entry)
        self._pending_rows += entry.rows
        if self._base is None:
            self._base = entry.first_row
        if entry.is_bad:
            self._bad.add(entry.serial)
        gone = super().add(entry)
        while self._live[0].first_row + self._live[0].rows <= self.num_rows - self.size:
            gone.append(self._live.popleft())
            self._bad.discard(gone[-1].serial)
        return gone

    def _push(self) -> None:
        """Give the buffer the rows that came since it was last asked for some."""
        if not self._pending:
            return
        counts = np.array([entry.rows for entry in self._pending])
        within = np.arange(self._pending_rows) - np.repeat(np.cumsum(counts) - counts, counts)
        first_rows, first_ids, versions = (
            np.repeat(np.array(values, np.int64), counts)
            for values in zip(
                *((each.first_row, each.serial * ROWS_PER_SEGMENT, each.policy_version) for each in self._pending),
                strict=True,
            )
        )
        unique_ids, places = first_ids + within, (first_rows + within) % self.size
        self._unique_ids[places] = unique_ids
        rows = {"unique_id": unique_ids, "place": places, "collect_iter": versions}
        self._buffer.push(TransitionBatch(rows), cur_collector_envstep=-1)
        self._pending, self._pending_rows = [], 0

    @property
    def count(self) -> int:
        """Return how many rows there are to draw from."""
        self._push()
        return self._buffer.count()

    def draw(self, batch_size: int, learner_iter: int) -> Batches | None:
        """Return one batch; None if the buffer gives none."""
        self._push()
        rows: Any = self._buffer.sample(batch_size, learner_iter)
        if rows is None:
            return None
        weights = rows["weight"].astype(np.float32) if "weight" in rows.columns else None
        return Batches(1, rows["place"], rows["unique_id"], weights)

    def quarantine(self, name: str) -> SegmentEntry | None:
        for number, entry in enumerate(self._live):
            if entry.name == name and not entry.is_bad:
                self._live[number] = replace(entry, is_bad=True)
                self._bad.add(entry.serial)
                return self._live[number]
        return None

    def set_priorities(self, places: Array, unique_ids: Array, priorities: Array) -> int:
        """Update the priorities of rows that are still there; return of how many. Raises RefusedError for nonsense."""
        if not len(places) == len(unique_ids) == len(priorities):
            raise RefusedError("malformed", "places, unique_ids and priorities differ in length")
        if len(places) and (places.min() < 0 or places.max() >= self.size or priorities.min() < 0):
            raise RefusedError("malformed", "a place is outside of the buffer, or a priority negative")
        self._push()
        still = self._unique_ids[places] == unique_ids
        places = places[still]
        if not len(places):
            return 0
        # The buffer numbers rows as they come, beginning with the first that it saw.
        assert self._base is not None, "there are rows"
        oldest = self.num_rows - self.size
        numbers = oldest + (places - oldest) % self.size - self._base
        info = {"replay_buffer_idx": numbers % self.size, "replay_unique_id": numbers, "priority": priorities[still]}
        self._buffer.update(info)
        return len(places)

    def close(self) -> None:
        getattr(self._buffer, "close", lambda: None)()  # optional for an IBuffer


class OnPolicyIndex(_Segments):
    """Index of on-policy batches of `batch_rows` rows, for a mirror of `size` rows, that is two batches and more.

    With `batch_segments` a batch is so many segments, of whole episodes, and the rows of each batch begin at the start
    of the mirror: the learner has drawn the batch before.
    """

    def __init__(self, size: int, batch_rows: int, *, batch_segments: int = 0) -> None:
        if size < 2 * batch_rows:
            raise ValueError(f"a mirror of {size} rows does not hold two batches of {batch_rows}")
        super().__init__(size)
        self.batch_rows = batch_rows
        self._batch_segments = batch_segments
        self.used_up_to = 0  # serial of the last segment that was handed out or dropped

    @property
    def _most_rows(self) -> int:
        return self.size - self.count if self._batch_segments else self.batch_rows

    @property
    def count(self) -> int:
        """Return how many rows wait to be learned from."""
        return sum(entry.rows for entry in self._live)

    @property
    def filled(self) -> int:
        """Return how much of a batch waits: rows, or segments where these make it up."""
        return len(self._live) if self._batch_segments else self.count

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
        places = [(entry.first_row + np.arange(entry.rows, dtype=np.int64)) % self.size for entry in self._live]
        unique_ids = [entry.serial * ROWS_PER_SEGMENT + np.arange(entry.rows, dtype=np.int64) for entry in self._live]
        return Batches(1, np.concatenate(places), np.concatenate(unique_ids), None)

    def clear(self) -> list[SegmentEntry]:
        """Forget the waiting rows: they were handed out, or came to nothing; return their segments."""
        gone = list(self._live)
        self._live.clear()
        self.used_up_to = self.next_serial - 1
        if self._batch_segments:
            self.num_rows = 0
        return gone

    def plain(self) -> dict[str, int]:
        """Return what is saved beside the segments: numbers go on even where none is left."""
        return {"next_serial": self.next_serial, "num_rows": self.num_rows, "used_up_to": self.used_up_to}

    def load(self, plain: dict[str, int]) -> None:
        """Take over what `plain` returned, after the segments that still wait were added."""
        vars(self).update({name: plain[name] for name in ("next_serial", "num_rows", "used_up_to")})

    def set_priorities(self, places: Array, unique_ids: Array, priorities: Array) -> int:
        """Refuse: each row is learned from once."""
        raise RefusedError("malformed", "rows of an on-policy run have no priorities")
