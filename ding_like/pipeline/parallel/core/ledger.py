"""Ledger of data: which segments there are, how many env steps were taken, how many updates they allow.

Rows are what is stored and drawn; a row may be a sequence. Collectors are given orders of rows. Updates are allowed by
env steps or, where whole episodes are collected, by episodes; what an order of rows comes to in these is known from the
segments that came.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.refusal import RefusedError
from ding_like.pipeline.parallel.core.index import BufferIndex, OnPolicyIndex, SegmentEntry
from ding_like.pipeline.parallel.core.state import StateStore
from ding_like.pipeline.update_ratio import OnPolicyRatio, UpdateRatio

logger = logging.getLogger(__name__)

_MAX_BATCHES = 256
_MAX_BATCH_SIZE = 65_536
# Told in one reply, up to 1 MB: more than a busy coordinator takes in between two, or a learner never catches up.
_MAX_NEW_SEGMENTS = 4096
_MAX_BAD_SHARE = 0.1  # of rows; above it something is broken
_MAX_DIGITS = 15  # of the number of a segment
_MANY_ROWS = 1000  # before their share says something


@dataclass(frozen=True)
class CoreConfig:
    """Settings of the core."""

    ratio: UpdateRatio | OnPolicyRatio
    buffer_size: int
    segment_rows: int  # what a worker collects between two messages; 1 where that is `segment_episodes`
    lease_ttl_s: float = 10.0
    heartbeat_s: float = 3.0
    max_failures: int = 3  # of one task, before the run fails
    publish_timeout_s: float = 30.0  # that a learner may go on without publishing weights
    lanes: int = 0  # envs of a collector; 0: what it says of env steps is not held against the time
    steps_per_row: int = 1  # env steps; more where a row is a sequence
    first_batch_rows: int = 0  # that the first update needs
    segment_episodes: int = 0  # whole episodes that make up a segment; 0: rows do

    @property
    def is_on_policy(self) -> bool:
        """Tell whether each row is learned from once."""
        return isinstance(self.ratio, OnPolicyRatio)


class SegmentLedger:
    """Ledger of segments: numbers each once, and draws batches of their rows at the update ratio of the config.

    `cfg.steps_per_row` are the env steps of a row as long as no segment has come. With `cfg.segment_episodes` an order
    of one row is a segment of so many whole episodes, and `cfg.ratio` counts those: its `warmup_steps` are env steps,
    after which `updates` follow each `steps` episodes.
    """

    def __init__(
        self, cfg: CoreConfig, *, store: StateStore, make_index: Callable[[str], BufferIndex | OnPolicyIndex]
    ) -> None:
        self._store = store
        self._ratio = cfg.ratio
        self._make_index = make_index
        self._steps_per_row = cfg.steps_per_row
        self._first_batch_rows = cfg.first_batch_rows
        self._segment_episodes = cfg.segment_episodes
        self._warmup_segments: int | None = None  # that had come when the warm-up was over
        self.buffers: dict[str, BufferIndex | OnPolicyIndex] = {}
        self.env_step = 0
        self.granted_updates = 0
        self.stale_rows = 0  # that came too late to be learned from
        self.bad_rows = 0  # whose files could not be read
        self.spoiled: list[str] = []  # names of segments whose files are to be set aside, to be looked into
        self.removable: list[str] = []  # names of segments whose files are not needed any more
        # By buffer: segments whose rows are not used any more, but the learner may not have passed them.
        self._gone: dict[str, deque[SegmentEntry]] = {}
        self._last_number: dict[str, int] = {}  # of the segments of each start of a worker
        # On-policy: (attempt, version) of the weights whose rows were handed out last.
        self._learned: tuple[int, int] | None = None
        self._learner_attempt = 0  # that asked for batches last

    # --- what workers send

    def take(
        self,
        worker_id: str,
        buffer_id: str,
        info: m.SegmentInfo,
        newest: m.PolicyVersion | None,
        *,
        most_env_steps: float = float("inf"),
    ) -> bool:
        """Take a segment in; return False for one that came before. Raises RefusedError for one that never fits.

        On-policy, `newest` are the weights whose rows are wanted. `most_env_steps` are all that the worker can have
        taken for it.
        """
        number = _number_of(info.name, worker_id)
        index = self.index(buffer_id)
        entry = index.number(info)
        if number <= self._last_number.get(worker_id, -1):  # segments of one start of a worker come in order
            return False
        if entry.env_steps > most_env_steps:
            raise RefusedError(
                "schema",
                f"segment {info.name} is said to have taken {entry.env_steps:,} env steps; in the time since it has "
                f"come, {worker_id} can have taken {most_env_steps:,.0f} more",
            )
        self._last_number[worker_id] = number
        self._store.put("stream", worker_id, {"last": number})
        self._note_warmup()
        self.env_step += entry.env_steps
        weights = (info.policy_attempt, info.policy_version)
        if isinstance(index, OnPolicyIndex) and not self._is_fresh(index, entry, weights, newest):
            self.stale_rows += entry.rows
            self.removable.append(entry.name)
            return True
        self._set_aside(buffer_id, index.add(entry))
        self._store.put("segment", _segment_key(buffer_id, entry.serial), vars(entry))
        return True

    def _note_warmup(self) -> None:
        """Note, before the first segment beyond the warm-up, how many there were."""
        ratio = self._ratio
        if self._warmup_segments is None and isinstance(ratio, UpdateRatio) and self.env_step >= ratio.warmup_steps:
            self._warmup_segments = self._num_segments

    def _is_fresh(
        self, index: OnPolicyIndex, entry: SegmentEntry, weights: tuple[int, int], newest: m.PolicyVersion | None
    ) -> bool:
        """Tell whether rows were made with the newest weights, and have a place in a batch."""
        is_newest = newest is not None and weights == (newest.attempt, newest.version)
        return is_newest and weights != self._learned and index.has_place(entry)

    def has_room(self, ordered_rows: int, segment_rows: int) -> bool:
        """Tell whether one more segment may be collected beside `ordered_rows` that are under way; off-policy.

        There is room until the first batch can be drawn: no update comes before. Later a segment that takes more
        than the room that always comes again may exceed it: else nothing would ever be collected.
        """
        ratio = self._ratio
        assert isinstance(ratio, UpdateRatio), "on-policy, `room` says how many rows are wanted"
        if self._num_rows + ordered_rows < self._first_batch_rows:
            return True
        room = ratio.credit(self._progress + self._cost(ordered_rows), self.granted_updates)
        return room >= min(self._cost(segment_rows), ratio.lasting_credit)

    def room(self, ordered_rows: int, newest: m.PolicyVersion | None) -> int:
        """Return how many more rows are wanted, on-policy, beside `ordered_rows` that are under way."""
        ratio = self._ratio
        assert isinstance(ratio, OnPolicyRatio), "off-policy, `has_room` says whether a segment is"
        if newest is None or (newest.attempt, newest.version) == self._learned:
            return 0
        wanted = ratio.batch_segments or ratio.batch_rows
        return (
            wanted
            - ordered_rows
            - sum(index.filled for index in self.buffers.values() if isinstance(index, OnPolicyIndex))
        )

    @property
    def _num_rows(self) -> int:
        return sum(index.num_rows for index in self.buffers.values())

    @property
    def _num_segments(self) -> int:
        return sum(index.next_serial - 1 for index in self.buffers.values())

    @property
    def _progress(self) -> int:
        """Return what the update ratio counts: env steps or, after those of the warm-up, episodes."""
        if not self._segment_episodes:
            return self.env_step
        assert isinstance(self._ratio, UpdateRatio), "on-policy, nothing is counted"
        if self._warmup_segments is None:
            return 0
        return self._ratio.warmup_steps + (self._num_segments - self._warmup_segments) * self._segment_episodes

    def _cost(self, rows: int) -> int:
        """Return what an order of rows takes, in the unit of `_progress`."""
        if self._segment_episodes:
            return rows * self._segment_episodes
        have = self._num_rows
        # Rounded: where a row is one step, some steps are still on their way, or were dropped.
        return rows * max(1, (self.env_step + have // 2) // have if have else self._steps_per_row)

    # --- what the learner asks and tells

    def check_sample(self, buffer_id: str, message: m.Sample) -> None:
        """Raise RefusedError for a question that has no answer."""
        if not 1 <= message.batch_size <= _MAX_BATCH_SIZE or not 1 <= message.num_batches <= _MAX_BATCHES:
            raise RefusedError("too_large", f"batch_size up to {_MAX_BATCH_SIZE}, num_batches up to {_MAX_BATCHES}")
        last = self.index(buffer_id).next_serial - 1
        if not 0 <= message.have_segments_up_to <= last:
            raise RefusedError("malformed", f"there are segments up to {last} only")

    def news(self, buffer_id: str, have: int) -> tuple[tuple[m.NewSegment, ...], bool]:
        """Return the segments after `have` that fit into a reply, and whether they are all, so that batches may follow.

        Files whose rows are not used any more are released up to `have`, which the learner has read.
        """
        index = self.index(buffer_id)
        news = index.new_segments(have, _MAX_NEW_SEGMENTS)
        self._pass(buffer_id, have)
        return news, not news or news[-1].serial == index.next_serial - 1

    def draw(
        self, buffer_id: str, batch_size: int, learner_iter: int, newest: m.PolicyVersion | None = None
    ) -> m.Batches | None:
        """Draw one batch; None if none is allowed now, or there are too few rows."""
        index = self.index(buffer_id)
        if self._allowed(index) < 1 or index.count < batch_size:
            return None
        batch = index.draw(batch_size, learner_iter)
        if batch is None:
            return None
        self.granted_updates += 1
        if isinstance(index, OnPolicyIndex):
            self._set_aside(buffer_id, index.clear())
            self._learned = None if newest is None else (newest.attempt, newest.version)
        return batch

    def take_learner_in(self, attempt: int, learner_iter: int) -> None:
        """Grant again, once, what an earlier attempt was granted and had not learned, or had not saved.

        On-policy, rows are learned from once, and what it had not learned is lost.
        """
        if attempt > max(self._learner_attempt, 1) and isinstance(self._ratio, UpdateRatio):
            self.granted_updates = min(self.granted_updates, learner_iter)
        self._learner_attempt = attempt

    @property
    def waiting_updates(self) -> int:
        """Return how many batches may be handed out beside those that were."""
        return sum(max(self._allowed(index), 0) for index in self.buffers.values())

    def _allowed(self, index: BufferIndex | OnPolicyIndex) -> int:
        if isinstance(self._ratio, UpdateRatio):
            return self._ratio.allowed_updates(self._progress) - self.granted_updates
        return int(isinstance(index, OnPolicyIndex) and index.is_full)

    def update(self, buffer_id: str, priorities: Mapping[str, Any] | None, bad_segments: Iterable[str]) -> str | None:
        """Take priorities and the names of files that cannot be read; return why the run cannot go on.

        `priorities` are `places`, `unique_ids` and `priorities` [B] of rows, or None.
        """
        index = self.index(buffer_id)
        if priorities and all(priorities.get(name) is not None for name in ("places", "unique_ids", "priorities")):
            index.set_priorities(priorities["places"], priorities["unique_ids"], priorities["priorities"])
        for name in bad_segments:
            entry = index.quarantine(name)
            if entry is not None:
                self.bad_rows += entry.rows
                self.spoiled.append(name)
                self._store.put("segment", _segment_key(buffer_id, entry.serial), vars(entry))
                logger.warning("segment %s cannot be read: its %d rows are left out", name, entry.rows)
        if index.num_rows >= _MANY_ROWS and self.bad_rows > _MAX_BAD_SHARE * index.num_rows:
            return (
                f"{self.bad_rows:,} of {index.num_rows:,} rows could not be read by the learner. See that all hosts "
                "see the same data folder (system.path_data), or use communication_mode 'stream'."
            )
        return None

    def drop_waiting(self) -> None:
        """Forget what was collected, on-policy: there are newer weights, or no learner."""
        for buffer_id, index in self.buffers.items():
            if isinstance(index, OnPolicyIndex) and index.count:
                self.stale_rows += index.count
                self._set_aside(buffer_id, index.clear())

    # --- saved state

    def plain(self) -> dict[str, Any]:
        """Return what is saved beside the segments."""
        return {
            "env_step": self.env_step,
            "granted_updates": self.granted_updates,
            "stale_rows": self.stale_rows,
            "bad_rows": self.bad_rows,
            "learned": None if self._learned is None else list(self._learned),
            "learner_attempt": self._learner_attempt,
            "warmup_segments": self._warmup_segments,
            "once": {name: index.plain() for name, index in self.buffers.items() if isinstance(index, OnPolicyIndex)},
        }

    def restore(self, saved: dict[str, Any] | None) -> None:
        """Go on from saved state.

        On-policy, rows that were handed out are not handed out again: a learner that had not used them lost them.
        """
        if saved is None:
            return
        for name in ("env_step", "granted_updates", "stale_rows", "bad_rows"):
            setattr(self, name, saved[name])
        self._learned = None if saved["learned"] is None else tuple(saved["learned"])
        self._learner_attempt = saved.get("learner_attempt", 0)
        self._warmup_segments = saved.get("warmup_segments")
        self._last_number = {stream: item["last"] for stream, item in self._store.items("stream")}
        for key, plain in self._store.items("segment"):
            buffer_id, entry = key.rpartition("/")[0], SegmentEntry(**plain)
            used_up_to = saved["once"].get(buffer_id, {"used_up_to": 0})["used_up_to"]
            gone = [entry] if entry.serial <= used_up_to else self.index(buffer_id).add(entry)
            self._set_aside(buffer_id, gone)
        for buffer_id, once in saved["once"].items():
            index = self.index(buffer_id)
            assert isinstance(index, OnPolicyIndex)
            index.load(once)

    def index(self, buffer_id: str) -> BufferIndex | OnPolicyIndex:
        """Return the index of a buffer, a new one for a name that was not used yet."""
        if buffer_id not in self.buffers:
            self.buffers[buffer_id] = self._make_index(buffer_id)
        return self.buffers[buffer_id]

    def take_files(self) -> tuple[list[str], list[str]]:
        """Return, once, the names of segments whose files are not needed any more, and of those that are unreadable."""
        found = self.removable, self.spoiled
        self.removable, self.spoiled = [], []
        return found

    def live_segments(self) -> list[str]:
        """Return the names of all segments whose files may still be needed."""
        gone = [entry.name for entries in self._gone.values() for entry in entries]
        return gone + [each.name for index in self.buffers.values() for each in index.new_segments(0, 2**60)]

    def close(self) -> None:
        """Close the buffers."""
        for index in self.buffers.values():
            index.close()

    def _set_aside(self, buffer_id: str, entries: list[SegmentEntry]) -> None:
        self._gone.setdefault(buffer_id, deque()).extend(entries)

    def _pass(self, buffer_id: str, serial: int) -> None:
        """Release files whose rows are not used any more and which the learner has passed."""
        gone = self._gone.setdefault(buffer_id, deque())
        while gone and gone[0].serial <= serial:
            entry = gone.popleft()
            self.removable.append(entry.name)
            self._store.delete("segment", _segment_key(buffer_id, entry.serial))


def _segment_key(buffer_id: str, serial: int) -> str:
    return f"{buffer_id}/{serial:012d}"


def _number_of(name: str, worker_id: str) -> int:
    """Return the number in a segment's name. Raises RefusedError for a name that is not of this worker."""
    stream, _, number = name.rpartition(".")
    if stream != worker_id or not number.isdecimal() or len(number) > _MAX_DIGITS:
        raise RefusedError("malformed", f"segment {name} is not named {worker_id}.<number>")
    return int(number)
