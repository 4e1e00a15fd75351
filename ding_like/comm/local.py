"""Carry rows and weights between parts of one process; threads may share them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ding_like.comm.channels import Batch, CollectRequest, Rows, Segment, Version, Weights
from ding_like.data.rows import as_batch
from ding_like.types import Array
from ding_like.utils.log import one_time_warning


class RowStore(Protocol):
    """Store of rows that are learned from: a replay buffer, or `BatchOnce`."""

    def push(self, data: Any, cur_collector_envstep: int) -> None: ...  # Any: a buffer stores rows of any kind

    def sample(self, batch_size: int, cur_learner_iter: int) -> Sequence[Any] | None: ...

    def update(self, info: Mapping[str, Any]) -> None: ...

    def count(self) -> int: ...


class Ratio(Protocol):
    """Ratio of updates to what was collected, such as an `UpdateRatio`."""

    def allowed_updates(self, collected: int, /) -> int: ...

    def credit(self, collected: int, granted: int, /) -> int: ...


class BatchOnce:
    """Store that hands out what it was given last, whole and once: on-policy rows."""

    def __init__(self) -> None:
        self._batch: Rows | None = None

    def push(self, data: Rows, cur_collector_envstep: int) -> None:
        """Store a batch, in place of one that was not sampled."""
        self._batch = data

    def sample(self, batch_size: int, cur_learner_iter: int) -> Rows | None:
        """Return the batch, however large; None when there is none."""
        batch, self._batch = self._batch, None
        return batch

    def update(self, info: Mapping[str, Any]) -> None:
        """Do nothing: rows that are used once need no priorities."""

    def count(self) -> int:
        """Return the rows that are still to be taken."""
        return 0 if self._batch is None else len(self._batch)


class LocalRows:
    """Queue of rows in one process: collected segments fill a store, and batches are drawn from it.

    Each segment, of `segment_rows` rows as a rule, allows updates by `ratio`; with `counts_rows` each row does, so that
    a shorter segment allows fewer; with `counts_episodes` each whole episode does, and `segment_rows` is a number of
    them. Where the store has too few rows for a batch, the updates that are allowed by then are passed over and not
    made up later. `newest` returns the version of the learner's weights; `env_step` counts the steps taken before.
    Nothing waits: `timeout_s` is an argument of the queues that do.
    """

    def __init__(
        self,
        store: RowStore,
        ratio: Ratio,
        *,
        segment_rows: int,
        batch_size: int,
        newest: Callable[[], Version],
        env_step: int = 0,
        counts_rows: bool = False,
        counts_episodes: bool = False,
        least_rows: int = 0,
    ) -> None:
        self._store, self._ratio = store, ratio
        self._segment_rows, self._batch_size, self._least_rows = segment_rows, batch_size, least_rows
        self._newest = newest
        self._counts_rows, self._counts_episodes = counts_rows, counts_episodes
        self.env_step = env_step  # of all segments, and those before
        self.num_rows = 0  # that came
        self.num_drawn = 0  # batches that were handed out
        self._collected = 0  # segments, rows or episodes that allow updates
        self._granted = 0  # updates that were handed out or passed over
        self._drawn: Batch | None = None
        self._lock = threading.RLock()

    def put(self, segment: Segment, *, asked: int | None = None) -> CollectRequest:
        """Store a segment's rows, and return the next order.

        `asked` is how many episodes it was to have where episodes are counted, by default those of an order.
        """
        with self._lock:
            self._keep(segment)
            if self._counts_episodes:
                self._collected += self._segment_rows if asked is None else asked
            else:
                self._collected += len(segment.batch) if self._counts_rows else 1
            return self.order()

    def put_random(self, segment: Segment) -> None:
        """Store a segment of random actions, which are collected before a run's first update and allow none."""
        with self._lock:
            self._keep(segment)

    def _keep(self, segment: Segment) -> None:
        self.env_step += segment.env_steps
        self.num_rows += len(segment.batch)
        self._store.push(segment.batch, cur_collector_envstep=self.env_step)

    def drop(self, segment: Segment) -> None:
        """Count the env steps of a segment whose rows are not to be learned from."""
        with self._lock:
            self.env_step += segment.env_steps

    def order(self, *, timeout_s: float = 0.0) -> CollectRequest:
        """Return how many rows may be collected now; 0 while updates are behind."""
        with self._lock:
            rows = self._segment_rows if self._ratio.credit(self._collected, self._granted) > 0 else 0
            return CollectRequest(False, rows, self.env_step, self._newest())

    def next(self, *, timeout_s: float = 0.0) -> Batch | None:
        """Draw a batch if the ratio allows an update and the store has as many rows, else return None."""
        with self._lock:
            allowed = self._ratio.allowed_updates(self._collected)
            if self._granted >= allowed:
                return None
            # Fewer than `least_rows` were asked for: no warning about it.
            has_enough = not self._least_rows or self._store.count() >= self._least_rows
            batch = draw(self._store, self._batch_size, self._newest().update) if has_enough else None
            self._granted = allowed if batch is None else self._granted + 1
            self._drawn = batch
            self.num_drawn += batch is not None
            return batch

    def feedback(self, train_iter: int, *, priority: Array | None, info: Callable[[], Mapping[str, Any]]) -> None:
        """Give the store the priorities of the batch that was drawn last; `info` is not read here."""
        if priority is not None:
            with self._lock:
                update_priorities(self._store, self._drawn, priority)

    def state_dict(self, *, num_lost: int = 0) -> dict[str, int]:
        """Return how much was collected and how many updates were made of it; the store saves itself.

        `num_lost` batches were handed out and not learned from: they are handed out again.
        """
        with self._lock:
            return {"collected": self._collected, "granted": self._granted - num_lost}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Resume from what `state_dict` returned."""
        with self._lock:
            self._collected, self._granted = state["collected"], state["granted"]


def draw(store: RowStore, batch_size: int, train_iter: int) -> Batch | None:
    """Return a batch of a store, None where it has too few rows for one."""
    batch: Any = store.sample(batch_size, train_iter)
    if batch is None:
        one_time_warning(
            f"the replay buffer holds fewer rows than batch_size {batch_size}: updates begin when it has as many. "
            "policy.random_collect_size fills it first, where random actions can be learned from."
        )
    return batch  # type: ignore[no-any-return]  # a store hands out what it was given


def update_priorities(store: RowStore, batch: Batch | None, priority: Array) -> None:
    """Give a store the priorities of a batch's rows, or windows, that it handed out."""
    rows = as_batch(batch)
    # Windows have a priority each, so their places stand apart from their rows' columns.
    columns = getattr(batch, "per_window", {}) if rows is None else rows.columns
    places = {name: columns.get(name) for name in ("replay_buffer_idx", "replay_unique_id")}
    store.update({"priority": priority, **places})


class NewestWeights:
    """WeightReader of weights that a transport hands in by `put`; threads may share it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._newest: dict[str, Weights] = {}

    def put(self, weights: Weights) -> None:
        """Store weights, in place of a policy's older ones, and wake the readers that wait."""
        with self._changed:
            self._newest[weights.policy_id] = weights
            self._changed.notify_all()

    def newest(self, policy_id: str, *, newer_than: Version | None = None, timeout_s: float = 0.0) -> Weights | None:
        """Return the newest weights of a policy; see `WeightReader`."""

        def is_there() -> bool:
            weights = self._newest.get(policy_id)
            return weights is not None and (newer_than is None or weights.version > newer_than)

        with self._changed:
            return self._newest[policy_id] if self._changed.wait_for(is_there, max(timeout_s, 0.0)) else None
