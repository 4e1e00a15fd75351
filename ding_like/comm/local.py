"""Carry rows and commands between parts of one process; all ends may be used by different threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ding_like.comm.channels import Batch, Order, Rows, Segment, Version
from ding_like.data.rows import as_batch
from ding_like.types import Array
from ding_like.utils.log import one_time_warning


class RowStore(Protocol):
    """Keep rows until they are learned from: a replay buffer, or `BatchOnce`."""

    def push(self, data: Any, cur_collector_envstep: int) -> None: ...  # Any: a buffer stores rows of any kind

    def sample(self, batch_size: int, cur_learner_iter: int) -> Sequence[Any] | None: ...

    def update(self, info: Mapping[str, Any]) -> None: ...

    def count(self) -> int: ...


class Ratio(Protocol):
    """Hold collecting and learning to a ratio; here a step of collecting is a segment."""

    def allowed_updates(self, collected: int, /) -> int: ...

    def credit(self, collected: int, granted: int, /) -> int: ...


class BatchOnce:
    """Store that hands out what it was given last, whole and once: on-policy rows."""

    def __init__(self) -> None:
        self._batch: Rows | None = None

    def push(self, data: Rows, cur_collector_envstep: int) -> None:
        """Keep a batch, in place of one that nobody has taken."""
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
    """Queue of rows in one process: a RowSink that fills a store, and the BatchSource that draws from it.

    Each segment, of `segment_rows` rows as a rule, allows updates by `ratio`; with `counts_rows` each row does, so that
    a shorter segment allows fewer; with `counts_episodes` each whole episode does, and `segment_rows` is a number of
    them. Where the store has too few rows for a batch, the updates that are allowed by then
    are passed over and not made up later. `newest` returns the version of the learner's weights; `env_step` is what was
    taken before.
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
        self._store = store
        self._ratio = ratio
        self._segment_rows = segment_rows
        self._batch_size = batch_size
        self._newest = newest
        self._least_rows = least_rows
        self.env_step = env_step  # of all segments, and those before
        self.num_rows = 0  # that came
        self._counts_rows = counts_rows
        self._counts_episodes = counts_episodes
        self._collected = 0  # segments, rows or episodes that allow updates
        self._allowed = ratio.allowed_updates(0)  # updates for these
        self._granted = 0  # of which were handed out or passed over
        self._drawn: Batch | None = None
        self.num_drawn = 0  # batches that were handed out
        self._is_finished = False
        self._changed = threading.Condition()
        self._num_waiting = 0  # threads: to wake nobody takes longer than to look here

    # --- a collector's end

    def put(self, segment: Segment, *, asked: int | None = None) -> Order:
        """Store a segment's rows; see `RowSink`.

        `asked` is how many episodes it was to have where episodes are counted, by default those of an order.
        """
        with self._changed:
            self._keep(segment)
            if self._counts_episodes:
                self._collected += self._segment_rows if asked is None else asked
            else:
                self._collected += len(segment.batch) if self._counts_rows else 1
            self._allowed = self._ratio.allowed_updates(self._collected)
            self._wake()
            return self._order()

    def put_random(self, segment: Segment) -> None:
        """Store a segment of random actions, which are collected before a run's first update and allow none."""
        with self._changed:
            self._keep(segment)

    def drop(self, segment: Segment) -> None:
        """Count the env steps of a segment whose rows are not to be learned from."""
        with self._changed:
            self.env_step += segment.env_steps

    def _keep(self, segment: Segment) -> None:
        self.env_step += segment.env_steps
        self.num_rows += len(segment.batch)
        self._store.push(segment.batch, cur_collector_envstep=self.env_step)

    def order(self, *, timeout_s: float) -> Order:
        """Return what is to be done next; see `RowSink`."""
        with self._changed:
            if timeout_s > 0:
                self._wait(lambda: self._has_credit, timeout_s)
            return self._order()

    def _order(self) -> Order:
        rows = self._segment_rows if self._has_credit and not self._is_finished else 0
        return Order(self._is_finished, rows, self.env_step, self._newest())

    @property
    def _has_credit(self) -> bool:
        return self._ratio.credit(self._collected, self._granted) > 0

    # --- a learner's end

    @property
    def finished(self) -> bool:
        """Whether `close` was called."""
        return self._is_finished

    def next(self, *, timeout_s: float) -> Batch | None:
        """Draw a batch if the ratio allows one; see `BatchSource`."""
        with self._changed:
            if timeout_s > 0:
                self._wait(lambda: self._granted < self._allowed, timeout_s)
            if self._is_finished or self._granted >= self._allowed:
                return None
            batch = self._sample()
            if batch is None:
                self._granted = self._allowed
            else:
                self._granted += 1
            self._drawn = batch
            self.num_drawn += batch is not None
            self._wake()
            return batch

    def _sample(self) -> Batch | None:
        """Return a batch, None where the store has too few rows for one."""
        if self._least_rows and self._store.count() < self._least_rows:
            return None  # as was asked for: no word about it
        batch: Any = self._store.sample(self._batch_size, self._newest().update)
        if batch is None:
            one_time_warning(
                f"the replay buffer holds fewer rows than batch_size {self._batch_size}: updates begin when it has as "
                "many. policy.random_collect_size fills it first, where random actions can be learned from."
            )
        return batch  # type: ignore[no-any-return]  # a store hands out what it was given

    def _wait(self, is_due: Callable[[], bool], timeout_s: float) -> None:
        """Wait until it is due, or all is finished; whoever calls holds the condition."""
        self._num_waiting += 1
        try:
            self._changed.wait_for(lambda: self._is_finished or is_due(), timeout_s)
        finally:
            self._num_waiting -= 1

    def _wake(self) -> None:
        if self._num_waiting:
            self._changed.notify_all()

    def feedback(
        self,
        train_iter: int,
        *,
        priority: Array | None,
        info: Callable[[], Mapping[str, Any]],
    ) -> None:
        """Give the store the priorities of the batch that was drawn last; `info` is not read here."""
        if priority is None:
            return
        with self._changed:
            drawn = self._drawn
            rows = as_batch(drawn)
            # Windows have a priority each, so their places stand apart from their rows' columns.
            columns = getattr(drawn, "per_window", {}) if rows is None else rows.columns
            names = ("replay_buffer_idx", "replay_unique_id")
            self._store.update({"priority": priority, **{name: columns.get(name) for name in names}})

    def state_dict(self, *, num_lost: int = 0) -> dict[str, int]:
        """Return how much was collected and how many updates were made of it; the store saves itself.

        `num_lost` batches were handed out and not learned from: they are handed out again.
        """
        with self._changed:
            return {"collected": self._collected, "granted": self._granted - num_lost}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on from what `state_dict` returned."""
        with self._changed:
            self._collected, self._granted = state["collected"], state["granted"]
            self._allowed = self._ratio.allowed_updates(self._collected)

    def close(self) -> None:
        """End the queue: orders say so, and no batch comes any more; the store is its owner's."""
        with self._changed:
            self._is_finished = True
            self._wake()
