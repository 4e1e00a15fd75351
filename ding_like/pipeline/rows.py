"""Rows of a run that are learned from: the store, and the ratio of updates to what was collected."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ding_like.comm.channels import Batch, CollectRequest, Segment, Version
from ding_like.config import FrozenConfig
from ding_like.data.rows import as_batch
from ding_like.errors import SchemaError
from ding_like.types import Array, State
from ding_like.utils.log import one_time_warning

if TYPE_CHECKING:  # the command line imports this module, and needs no torch
    from ding_like.worker import BaseLearner, IBuffer


@dataclass(frozen=True)
class UpdateRatio:
    """Ratio of updates to env steps: after `warmup_steps` random ones, `updates` follow each `steps`.

    Collectors may be ahead by `max_lead` env steps. In one process a step is what a `RowQueue` counts.
    """

    warmup_steps: int
    steps: int
    updates: int
    max_lead: int

    def allowed_updates(self, env_step: int) -> int:
        """Return how many updates may have been taken when `env_step` steps have."""
        return max(0, env_step - self.warmup_steps) * self.updates // self.steps

    def credit(self, env_step: int, granted: int) -> int:
        """Return how many more env steps may be taken while `granted` updates have been handed out."""
        if not self.updates:
            return self.max_lead  # nothing is learned that collecting could run ahead of
        needed = self.warmup_steps + -(-granted * self.steps // self.updates)
        return max(0, needed + self.max_lead - env_step)

    @property
    def lasting_credit(self) -> int:
        """Credit that there is, at least, whenever all updates that are allowed were handed out."""
        return max(1, self.max_lead - -(-self.steps // max(self.updates, 1)))


@dataclass(frozen=True)
class OnPolicyRatio:
    """Ratio of on-policy runs: a batch of `batch_rows` rows by the newest weights, one update with it, and so on.

    With `batch_segments` a batch is so many segments of whole episodes, however many rows they have, and a request of
    one row stands for one of them.
    """

    batch_rows: int
    batch_segments: int = 0


def least_lead(*, warmup_steps: int, steps: int, updates: int, segment_steps: int, batch_steps: int) -> int:
    """Return the smallest lead, in env steps, with which neither side waits for the other for ever.

    Collectors are given a whole segment, of `segment_steps` env steps, or nothing, an update needs `steps / updates`
    env steps, and the first needs a whole batch, which takes `batch_steps`, even where there is no warm-up.
    """
    return max(0, batch_steps - warmup_steps) + segment_steps + -(-steps // updates)


class RowQueue:
    """Queue between collecting and learning in one process, in the ratio of a config; threads may share it.

    With a replay buffer each row (of a config with `n_episode`, each episode) allows its part of `update_per_collect`
    updates; without one each segment is learned from once. Updates that are due while the buffer has fewer rows than a
    batch, or than `least_rows`, are skipped. `newest` returns the version of the learner's weights.
    """

    def __init__(
        self,
        cfg: FrozenConfig,
        buffer: IBuffer | None,
        *,
        newest: Callable[[], Version],
        env_step: int = 0,  # taken before
        least_rows: int = 0,
    ) -> None:
        collect, learn = cfg.policy.collect, cfg.policy.learn
        self._buffer = buffer
        self._batch: Batch | None = None  # the newest segment's rows, without a buffer
        self._newest, self._least_rows, self._batch_size = newest, least_rows, learn.batch_size
        self._segment_rows = collect.get("n_sample") or collect.get("n_episode") or 1
        self._counts: str = "segments" if buffer is None else "rows" if collect.get("n_sample") else "episodes"
        each, updates = (1, 1) if buffer is None else (self._segment_rows, learn.update_per_collect)
        self._ratio = UpdateRatio(warmup_steps=0, steps=each, updates=updates, max_lead=each)
        self._has_priorities = bool(cfg.policy.get("priority"))
        self.env_step = env_step
        self.num_rows = 0  # that came
        self.num_drawn = 0  # batches that were handed out
        self._collected = 0  # segments, rows or episodes that allow updates
        self._granted = 0  # updates that were handed out or skipped
        self._drawn: Batch | None = None
        self._lock = threading.RLock()

    def put(self, segment: Segment, *, asked: int | None = None) -> CollectRequest:
        """Store a segment's rows, and return the next request.

        `asked` is how many episodes it was to have where episodes are counted, by default those of a request.
        """
        with self._lock:
            self.put_random(segment)
            if self._counts == "episodes":
                self._collected += self._segment_rows if asked is None else asked
            else:
                self._collected += len(segment.batch) if self._counts == "rows" else 1
            return self.order()

    def put_random(self, segment: Segment) -> None:
        """Store a segment of random actions, which are collected before a run's first update and allow none."""
        with self._lock:
            self.env_step += segment.env_steps
            self.num_rows += len(segment.batch)
            if self._buffer is None:
                self._batch = segment.batch
            else:
                self._buffer.push(segment.batch, cur_collector_envstep=self.env_step)

    def drop(self, segment: Segment) -> None:
        """Count the env steps of a segment whose rows are not learned from."""
        with self._lock:
            self.env_step += segment.env_steps

    def order(self) -> CollectRequest:
        """Return how many rows may be collected now; 0 while updates are behind."""
        with self._lock:
            rows = self._segment_rows if self._ratio.credit(self._collected, self._granted) > 0 else 0
            return CollectRequest(False, rows, self.env_step, self._newest())

    def next(self) -> Batch | None:
        """Return a batch if the ratio allows an update and the store has as many rows, else None."""
        with self._lock:
            allowed = self._ratio.allowed_updates(self._collected)
            if self._granted >= allowed:
                return None
            if self._buffer is None:
                batch, self._batch = self._batch, None
            elif self._least_rows and self._buffer.count() < self._least_rows:
                batch = None
            else:
                batch = self._buffer.sample(self._batch_size, self._newest().update)
                if batch is None:
                    warn_of_few_rows(self._batch_size)
            self._granted = allowed if batch is None else self._granted + 1
            self._drawn = batch
            self.num_drawn += batch is not None
            return batch

    def train_next(self, learner: BaseLearner) -> bool:
        """Train a learner on the next batch; return False if there is none."""
        batch = self.next()
        if batch is None:
            return False
        learner.train(batch, self.env_step)
        self.update_priorities(learner.priority_info.get("priority"))
        return True

    def update_priorities(self, priority: Array | None) -> None:
        """Store the priorities [B] of the last batch. Raises SchemaError where the config wants some, for None."""
        if self._buffer is not None and self._has_priorities:
            with self._lock:
                update_priorities(self._buffer, self._drawn, priority)

    def state_dict(self, *, num_lost: int = 0) -> State:
        """Return how much was collected and how many updates were made of it; the store saves itself.

        `num_lost` batches were handed out and not learned from: they are handed out again.
        """
        with self._lock:
            return {"collected": self._collected, "granted": self._granted - num_lost}

    def load_state_dict(self, state: State) -> None:
        """Resume from what `state_dict` returned."""
        with self._lock:
            self._collected, self._granted = state["collected"], state["granted"]


def warn_of_few_rows(batch_size: int) -> None:
    """Warn, once, that a buffer had fewer rows than a batch."""
    one_time_warning(
        f"the replay buffer holds fewer rows than batch_size {batch_size}: updates begin when it has as many. "
        "policy.random_collect_size fills it first, where random actions can be learned from."
    )


def update_priorities(store: IBuffer, batch: Batch | None, priority: Array | None) -> None:
    """Give a store the priorities of the rows, or windows, of a batch. Raises SchemaError if the policy gave none."""
    if priority is None:
        raise SchemaError(
            "policy.priority is True, but the policy gave no priorities: return them as the second value of "
            "`grad` (in DI-engine's style, as 'priority'), or set policy.priority=False."
        )
    rows = as_batch(batch)
    # Windows have a priority each, so their places stand apart from their rows' columns.
    columns = getattr(batch, "per_window", {}) if rows is None else rows.columns
    places = {name: columns.get(name) for name in ("replay_buffer_idx", "replay_unique_id")}
    store.update({"priority": priority, **places})
