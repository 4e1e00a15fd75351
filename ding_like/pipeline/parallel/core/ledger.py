"""Ledger of data: which segments there are, how many env steps were taken, how many updates they allow.

The coordinator numbers segments and draws row numbers; the rows are at the learner, in a mirror of `buffer_size` rows.
A row may be a sequence. Collectors are given orders of rows. Updates are allowed by env steps or, where whole episodes
are collected, by episodes; what an order of rows comes to in these is known from the segments that came.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.messages import MAX_COUNT, ROWS_PER_SEGMENT, RefusedError
from ding_like.data.batch import TransitionBatch
from ding_like.pipeline.parallel.core.state import StateStore
from ding_like.pipeline.rows import OnPolicyRatio, UpdateRatio
from ding_like.types import Array, Json
from ding_like.worker import IBuffer

logger = logging.getLogger(__name__)

BUFFER_ID = "buffer"  # of the one buffer of a run
_MAX_BATCHES = 256
_MAX_BATCH_SIZE = 65_536
# Of one reply, up to 1 MB: more than a busy coordinator takes in between two, or a learner never catches up.
_MAX_NEW_SEGMENTS = 4096
_MAX_HASH = 64  # characters: SHA-256 in hex
_MAX_BAD_SHARE = 0.1  # of rows; above it something is broken
# Env steps of a segment: so many for each that its rows hold, and some of episodes that were dropped.
_STEPS_FOR_ONE, _STEPS_BESIDE = 100, 10_000
_MANY_ROWS = 1000  # before their share means something
PRIORITY_INFO = ("places", "unique_ids", "priorities")
_SAVED = ("env_step", "granted_updates", "stale_rows", "bad_rows", "learner_attempt")
_MAX_DIGITS = 15  # of the number of a segment
_NUMBERS = ("next_serial", "num_rows", "_used_up_to")  # of an on-policy ledger


@dataclass(frozen=True)
class CoreConfig:
    """Settings of the core."""

    ratio: UpdateRatio | OnPolicyRatio
    buffer_size: int
    segment_rows: int  # what a worker collects between two messages; 1 where that is `segment_episodes`
    lease_ttl_s: float = 10.0
    heartbeat_s: float = 3.0
    max_failures: int = 3  # of one task, before the run fails
    publish_timeout_s: float = 30.0  # that a learner may train without publishing weights
    steps_per_row: int = 1  # env steps; more where a row is a sequence
    first_batch_rows: int = 0  # that the first update needs
    segment_episodes: int = 0  # whole episodes that make up a segment; 0: rows do

    @property
    def is_on_policy(self) -> bool:
        """Whether each row is learned from once."""
        return isinstance(self.ratio, OnPolicyRatio)


@dataclass(frozen=True)
class SegmentEntry:
    """One segment in the ledger; it is one row of the saved state."""

    serial: int
    name: str
    rows: int
    first_row: int  # counted over all segments, never modulo
    policy_version: int
    env_steps: int
    sha256: str
    nbytes: int
    is_bad: bool = False  # its file cannot be read

    @property
    def key(self) -> str:
        """Key of the entry in the saved state."""
        return f"{BUFFER_ID}/{self.serial:012d}"


class SegmentLedger(ABC):
    """Ledger of segments: numbers each once, and draws batches of their rows at the update ratio of the config.

    Rows follow each other in order of serial, modulo `size`, as in the learner's mirror.
    """

    def __init__(self, cfg: CoreConfig, *, store: StateStore) -> None:
        self._cfg = cfg
        self._store = store
        self.size = cfg.buffer_size
        self.num_rows = 0  # ever
        self.next_serial = 1
        self.env_step = 0
        self.granted_updates = 0
        self.stale_rows = 0  # that came too late to be learned from
        self.bad_rows = 0  # whose files could not be read
        self.spoiled: list[str] = []  # names of segments whose files are to be set aside, to be looked into
        self.removable: list[str] = []  # names of segments whose files are not needed any more
        self._live: deque[SegmentEntry] = deque()  # that have rows to draw, the oldest first
        self._bad: set[int] = set()  # serials of live segments whose files cannot be read
        # Segments whose rows are not used any more, but the learner may not have passed them.
        self._gone: deque[SegmentEntry] = deque()
        self._last_number: dict[str, int] = {}  # of the segments of each start of a worker
        self.learner_attempt = 0  # that asked for batches last

    # --- what workers send

    def take(self, worker_id: str, info: m.SegmentInfo, newest: m.PolicyVersion | None) -> bool:
        """Take a segment in; return False for one that came before. Raises RefusedError for one that never fits.

        On-policy, `newest` are the weights whose rows are wanted.
        """
        number = _number_of(info.name, worker_id)
        entry = self._entry_of(info)
        if number <= self._last_number.get(worker_id, -1):  # segments of one start of a worker come in order
            return False
        self._last_number[worker_id] = number
        self._store.put("stream", worker_id, {"last": number})
        is_wanted = self._is_wanted(entry, (info.policy_attempt, info.policy_version), newest)
        self.env_step += entry.env_steps
        if is_wanted:
            self.add(entry)
            self._store.put("segment", entry.key, vars(entry))
        else:
            self.stale_rows += entry.rows
            self.removable.append(entry.name)
        return True

    def _entry_of(self, info: m.SegmentInfo) -> SegmentEntry:
        """Return the entry that a new segment will have. Raises RefusedError for one that can never fit."""
        limits = {
            "rows": (1, min(self._most_rows, ROWS_PER_SEGMENT)),
            "env_steps": (0, _STEPS_FOR_ONE * info.rows * self._cfg.steps_per_row + _STEPS_BESIDE),
            **dict.fromkeys(("policy_version", "policy_attempt"), (0, MAX_COUNT - 1)),
            "nbytes": (1, m.MAX_FILE),
        }
        for name, (least, most) in limits.items():
            if not least <= (value := getattr(info, name)) <= most:
                raise RefusedError("schema", f"segment {info.name} has {name} {value}; expected {least} to {most}")
        if len(info.sha256) > _MAX_HASH:
            raise RefusedError("schema", f"segment {info.name} has a hash of {len(info.sha256)} characters")
        told = {
            name: getattr(info, name) for name in ("name", "rows", "policy_version", "env_steps", "sha256", "nbytes")
        }
        return SegmentEntry(serial=self.next_serial, first_row=self.num_rows, **told)

    @property
    def _most_rows(self) -> int:
        """Number of rows that the next segment may have."""
        return self.size

    @abstractmethod
    def _is_wanted(self, entry: SegmentEntry, weights: tuple[int, int], newest: m.PolicyVersion | None) -> bool:
        """Return whether the rows of a segment, made with `weights` (attempt, version), are learned from."""

    def add(self, entry: SegmentEntry) -> None:
        """Take a numbered segment in."""
        self._live.append(entry)
        self.next_serial = entry.serial + 1
        self.num_rows = entry.first_row + entry.rows

    # --- what the learner asks and reports

    def check_sample(self, message: m.Sample) -> None:
        """Raise RefusedError for a question that has no answer."""
        if not 1 <= message.batch_size <= _MAX_BATCH_SIZE or not 1 <= message.num_batches <= _MAX_BATCHES:
            raise RefusedError("too_large", f"batch_size up to {_MAX_BATCH_SIZE}, num_batches up to {_MAX_BATCHES}")
        if not 0 <= message.have_segments_up_to < self.next_serial:
            raise RefusedError("malformed", f"there are segments up to {self.next_serial - 1} only")

    def new_segments(self, after_serial: int, limit: int) -> tuple[m.NewSegment, ...]:
        """Return segments with a serial above `after_serial`, the oldest first."""
        start = max(after_serial - self._live[0].serial + 1, 0) if self._live else 0  # serials follow each other
        return tuple(
            m.NewSegment(each.serial, each.name, each.rows, each.first_row % self.size, each.sha256, each.nbytes)
            for each in islice(self._live, start, start + limit)
        )

    def news(self, have: int) -> tuple[tuple[m.NewSegment, ...], bool]:
        """Return the segments after `have` that fit into a reply, and whether they are all, so that batches may follow.

        Files whose rows are not used any more are released up to `have`, which the learner has read.
        """
        news = self.new_segments(have, _MAX_NEW_SEGMENTS)
        while self._gone and self._gone[0].serial <= have:
            entry = self._gone.popleft()
            self.removable.append(entry.name)
            self._store.delete("segment", entry.key)
        return news, not news or news[-1].serial == self.next_serial - 1

    def take_learner_in(self, attempt: int, learner_iter: int) -> None:
        """Note which attempt asks for batches."""
        self.learner_attempt = attempt

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of rows to draw from."""

    @property
    @abstractmethod
    def waiting_updates(self) -> int:
        """Number of batches that may be handed out beside those that were."""

    def draw(self, batch_size: int, learner_iter: int, newest: m.PolicyVersion | None = None) -> m.Batches | None:
        """Draw one batch; None if none is allowed now, or there are too few rows."""
        if self.waiting_updates < 1 or self.count < batch_size:
            return None
        batch = self._draw(batch_size, learner_iter, newest)
        self.granted_updates += batch is not None
        return batch

    @abstractmethod
    def _draw(self, batch_size: int, learner_iter: int, newest: m.PolicyVersion | None) -> m.Batches | None: ...

    def join(self, drawn: Sequence[m.Batches]) -> m.Batches | None:
        """Return batches as one message, others in place of rows whose files cannot be read; None for no batches."""
        if not drawn:
            return None
        places = np.concatenate([each.places for each in drawn])
        unique_ids = np.concatenate([each.unique_ids for each in drawn])
        weights = None if drawn[0].weights is None else np.concatenate([each.weights for each in drawn])
        if self._bad:
            is_bad = np.isin(unique_ids // ROWS_PER_SEGMENT, list(self._bad))
            good, every = np.flatnonzero(~is_bad), np.arange(len(is_bad))
            chosen = np.where(is_bad, good[every % len(good)], every) if len(good) else every
            places, unique_ids = places[chosen], unique_ids[chosen]
            weights = None if weights is None else weights[chosen]
        return m.Batches(sum(each.num_batches for each in drawn), places, unique_ids, weights)

    def update(self, priorities: Mapping[str, Json] | None, bad_segments: Iterable[str]) -> str | None:
        """Take priorities and the names of files that cannot be read; return why the run cannot go on.

        `priorities` are `places`, `unique_ids` and `priorities` [B] of rows, or None.
        """
        if priorities and all(priorities.get(name) is not None for name in PRIORITY_INFO):
            self.set_priorities(*(priorities[name] for name in PRIORITY_INFO))
        for name in bad_segments:
            self._quarantine(name)
        if self.num_rows >= _MANY_ROWS and self.bad_rows > _MAX_BAD_SHARE * self.num_rows:
            return (
                f"{self.bad_rows:,} of {self.num_rows:,} rows could not be read by the learner. See that all hosts "
                "see the same data folder (system.path_data), or use communication_mode 'stream'."
            )
        return None

    @abstractmethod
    def set_priorities(self, places: Array, unique_ids: Array, priorities: Array) -> int:
        """Update the priorities of rows that are still there; return of how many. Raises RefusedError for nonsense."""

    def _quarantine(self, name: str) -> None:  # noqa: B027  # optional
        """Never draw a segment's rows again. On-policy, the learner puts other rows of the batch in their place."""

    def drop_waiting(self) -> None:  # noqa: B027  # optional
        """Forget what was collected, on-policy: there are newer weights, or no learner."""

    # --- files and saved state

    def take_files(self) -> tuple[list[str], list[str]]:
        """Return, once, the names of segments whose files are not needed any more, and of those that are unreadable."""
        found = self.removable, self.spoiled
        self.removable, self.spoiled = [], []
        return found

    def live_segments(self) -> list[str]:
        """Return the names of all segments whose files may still be needed."""
        return [entry.name for entry in (*self._gone, *self._live)]

    def plain(self) -> dict[str, Json]:
        """Return what is saved beside the segments."""
        return {name: getattr(self, name) for name in _SAVED}

    def restore(self, saved: Mapping[str, Json]) -> None:
        """Continue from saved state."""
        for name in _SAVED:
            setattr(self, name, saved[name])
        self._last_number = {stream: item["last"] for stream, item in self._store.items("stream")}
        for _, plain in self._store.items("segment"):
            self.add(SegmentEntry(**plain))

    def close(self) -> None:  # noqa: B027  # optional
        """Close the buffer, if there is one."""


class ReplayLedger(SegmentLedger):
    """Ledger of an off-policy run: one of our replay buffers, whose rows hold numbers in place of data.

    `cfg.steps_per_row` are the env steps of a row as long as no segment has come. With `cfg.segment_episodes` an order
    of one row is a segment of so many whole episodes, and `cfg.ratio` counts those: its `warmup_steps` are env steps,
    after which `updates` follow each `steps` episodes.
    """

    def __init__(self, cfg: CoreConfig, *, store: StateStore, buffer: IBuffer) -> None:
        super().__init__(cfg, store=store)
        assert isinstance(cfg.ratio, UpdateRatio)
        self._ratio = cfg.ratio
        self._buffer = buffer
        self._warmup_segments: int | None = None  # that had come when the warm-up was over
        self._base: int | None = None  # number of the first row that was pushed since the start of this process
        self._unique_ids = np.full(self.size, -1, np.int64)
        # Segments are small and many: the buffer gets their rows together, when it is asked for some.
        self._pending: list[SegmentEntry] = []
        self._pending_rows = 0

    def _is_wanted(self, entry: SegmentEntry, weights: tuple[int, int], newest: m.PolicyVersion | None) -> bool:
        # Noted before the first segment beyond the warm-up is counted.
        if self._warmup_segments is None and self.env_step >= self._ratio.warmup_steps:
            self._warmup_segments = self.next_serial - 1
        return True

    def add(self, entry: SegmentEntry) -> None:
        if self._pending_rows + entry.rows > self.size:  # a push may not overwrite its own rows
            self._push()
        self._pending.append(entry)
        self._pending_rows += entry.rows
        if self._base is None:
            self._base = entry.first_row
        if entry.is_bad:
            self._bad.add(entry.serial)
        super().add(entry)
        while self._live[0].first_row + self._live[0].rows <= self.num_rows - self.size:
            self._gone.append(self._live.popleft())
            self._bad.discard(self._gone[-1].serial)

    def _push(self) -> None:
        """Give the buffer the rows that came since it was last asked for some."""
        if not self._pending:
            return
        counts = np.array([entry.rows for entry in self._pending])
        within = np.arange(self._pending_rows) - np.repeat(np.cumsum(counts) - counts, counts)
        firsts = [(each.first_row, each.serial * ROWS_PER_SEGMENT, each.policy_version) for each in self._pending]
        first_rows, first_ids, versions = np.repeat(np.array(firsts, np.int64), counts, axis=0).T
        unique_ids, places = first_ids + within, (first_rows + within) % self.size
        self._unique_ids[places] = unique_ids
        rows = {"unique_id": unique_ids, "place": places, "collect_iter": versions}
        self._buffer.push(TransitionBatch(rows), cur_collector_envstep=-1)
        self._pending, self._pending_rows = [], 0

    def rows_allowed(self, ordered_rows: int, num_waiting: int, newest: m.PolicyVersion | None) -> int:
        """Return the rows of a segment, or 0 while there is no room for them beside `ordered_rows` of others.

        `num_waiting` others that have waited longer for a segment come first.

        There is room until the first batch can be drawn: no update comes before. Later a segment that takes more
        than the room that always comes again may exceed it: else nothing would ever be collected.
        """
        rows, ratio = self._cfg.segment_rows, self._ratio
        ordered_rows += num_waiting * rows
        if self.num_rows + ordered_rows < self._cfg.first_batch_rows:
            return rows
        room = ratio.credit(self._progress + self._cost(ordered_rows), self.granted_updates)
        return rows if room >= min(self._cost(rows), ratio.lasting_credit) else 0

    @property
    def _progress(self) -> int:
        """What the update ratio counts: env steps or, after those of the warm-up, episodes."""
        if not self._cfg.segment_episodes:
            return self.env_step
        if self._warmup_segments is None:
            return 0
        num_segments = self.next_serial - 1 - self._warmup_segments
        return self._ratio.warmup_steps + num_segments * self._cfg.segment_episodes

    def _cost(self, rows: int) -> int:
        """Return what an order of rows takes, in the unit of `_progress`."""
        if self._cfg.segment_episodes:
            return rows * self._cfg.segment_episodes
        have = self.num_rows
        # Rounded: where a row is one step, some steps are still on their way, or were dropped.
        return rows * max(1, (self.env_step + have // 2) // have if have else self._cfg.steps_per_row)

    def take_learner_in(self, attempt: int, learner_iter: int) -> None:
        """Grant again, once, what an earlier attempt was granted and had not learned, or had not saved."""
        if attempt > max(self.learner_attempt, 1):
            self.granted_updates = min(self.granted_updates, learner_iter)
        super().take_learner_in(attempt, learner_iter)

    @property
    def waiting_updates(self) -> int:
        return max(self._ratio.allowed_updates(self._progress) - self.granted_updates, 0)

    @property
    def count(self) -> int:
        self._push()
        return self._buffer.count()

    def _draw(self, batch_size: int, learner_iter: int, newest: m.PolicyVersion | None) -> m.Batches | None:
        rows: Any = self._buffer.sample(batch_size, learner_iter)
        if rows is None:
            return None
        weights = rows["weight"].astype(np.float32) if "weight" in rows.columns else None
        return m.Batches(1, rows["place"], rows["unique_id"], weights)

    def set_priorities(self, places: Array, unique_ids: Array, priorities: Array) -> int:
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

    def _quarantine(self, name: str) -> None:
        for number, entry in enumerate(self._live):
            if entry.name == name and not entry.is_bad:
                self._live[number] = entry = replace(entry, is_bad=True)
                self._bad.add(entry.serial)
                self.bad_rows += entry.rows
                self.spoiled.append(name)
                self._store.put("segment", entry.key, vars(entry))
                logger.warning("segment %s cannot be read: its %d rows are left out", name, entry.rows)

    def plain(self) -> dict[str, Json]:
        return {**super().plain(), "warmup_segments": self._warmup_segments}

    def restore(self, saved: Mapping[str, Json]) -> None:
        self._warmup_segments = saved.get("warmup_segments")
        super().restore(saved)

    def close(self) -> None:
        getattr(self._buffer, "close", lambda: None)()  # optional for an IBuffer


class OnPolicyLedger(SegmentLedger):
    """Ledger of an on-policy run, whose mirror holds two batches and more: each row is learned from once.

    Where a batch is a number of segments, of whole episodes, the rows of each batch begin at the start of the mirror:
    the learner has drawn the batch before.
    """

    def __init__(self, cfg: CoreConfig, *, store: StateStore) -> None:
        super().__init__(cfg, store=store)
        assert isinstance(cfg.ratio, OnPolicyRatio)
        self._batch_rows, self._batch_segments = cfg.ratio.batch_rows, cfg.ratio.batch_segments
        self._used_up_to = 0  # serial of the last segment that was handed out or dropped
        self._learned: tuple[int, int] | None = None  # (attempt, version) of the rows that were handed out last

    @property
    def _most_rows(self) -> int:
        return self.size - self.count if self._batch_segments else self._batch_rows

    def _is_wanted(self, entry: SegmentEntry, weights: tuple[int, int], newest: m.PolicyVersion | None) -> bool:
        if newest is None or weights != (newest.attempt, newest.version) or weights == self._learned:
            return False
        if self._batch_segments:
            return self.waiting_updates == 0
        return self.count + entry.rows <= self._batch_rows

    @property
    def _missing(self) -> int:
        """How much of a batch is not there: rows, or segments where these make it up."""
        return self._batch_segments - len(self._live) if self._batch_segments else self._batch_rows - self.count

    def rows_allowed(self, ordered_rows: int, num_waiting: int, newest: m.PolicyVersion | None) -> int:
        """Return the rows of a segment, or less: what is missing of a batch."""
        if newest is None or (newest.attempt, newest.version) == self._learned:
            return 0
        return max(0, min(self._cfg.segment_rows, self._missing - ordered_rows))

    @property
    def waiting_updates(self) -> int:
        return int(self._missing <= 0)

    @property
    def count(self) -> int:
        return sum(entry.rows for entry in self._live)

    def _draw(self, batch_size: int, learner_iter: int, newest: m.PolicyVersion | None) -> m.Batches:
        """Hand out all waiting rows as one batch.

        Raises RefusedError if the learner wants another number of rows, where the number is fixed.
        """
        if batch_size != self._batch_rows and not self._batch_segments:
            raise RefusedError("malformed", f"an on-policy batch has {self._batch_rows} rows, not {batch_size}")
        places = [(entry.first_row + np.arange(entry.rows, dtype=np.int64)) % self.size for entry in self._live]
        unique_ids = [entry.serial * ROWS_PER_SEGMENT + np.arange(entry.rows, dtype=np.int64) for entry in self._live]
        self._clear()
        self._learned = None if newest is None else (newest.attempt, newest.version)
        return m.Batches(1, np.concatenate(places), np.concatenate(unique_ids), None)

    def drop_waiting(self) -> None:
        if self._live:
            self.stale_rows += self.count
            self._clear()

    def _clear(self) -> None:
        """Forget the waiting rows: they were handed out, or came to nothing."""
        self._gone.extend(self._live)
        self._live.clear()
        self._used_up_to = self.next_serial - 1
        if self._batch_segments:
            self.num_rows = 0

    def set_priorities(self, places: Array, unique_ids: Array, priorities: Array) -> int:
        raise RefusedError("malformed", "rows of an on-policy run have no priorities")

    def plain(self) -> dict[str, Json]:
        """Return what is saved beside the segments: numbers continue even where no segment is left."""
        return {**super().plain(), "learned": self._learned, "numbers": [getattr(self, name) for name in _NUMBERS]}

    def restore(self, saved: Mapping[str, Json]) -> None:
        """Continue from saved state; rows that were handed out, also to a learner that did not use them, are lost."""
        super().restore(saved)
        self._learned = None if saved["learned"] is None else tuple(saved["learned"])
        if saved["numbers"] is not None:
            self.next_serial, self.num_rows, self._used_up_to = saved["numbers"]
            while self._live and self._live[0].serial <= self._used_up_to:
                self._gone.append(self._live.popleft())


def _number_of(name: str, worker_id: str) -> int:
    """Return the number in a segment's name. Raises RefusedError for a name that is not of this worker."""
    stream, _, number = name.rpartition(".")
    if stream != worker_id or not number.isdecimal() or len(number) > _MAX_DIGITS:
        raise RefusedError("malformed", f"segment {name} is not named {worker_id}.<number>")
    return int(number)
