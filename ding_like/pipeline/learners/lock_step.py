"""Keep the serial loops of several learners in step: they count together, decide together and learn as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ding_like.comm.channels import Order, RowSink, Segment
from ding_like.comm.learner_group import LearnerGroup
from ding_like.comm.local import RowStore
from ding_like.data.rows import as_batch
from ding_like.errors import CommError, SchemaError
from ding_like.pipeline.learners.joined import EqualityCheck, share_state
from ding_like.pipeline.learners.statistics import SharedStatistics

if TYPE_CHECKING:
    from ding_like.pipeline.build.serial import Components


class Turn(NamedTuple):
    """Say what is done before the next rows are collected."""

    signal: int = 0  # number of the signal that ends the run, 0: none
    saves: bool = False  # a point to resume from
    evaluates: bool = False


class LockStep(Protocol):
    """Let a serial run be one of several learners, or alone."""

    def begin(self, *, goes_on: bool) -> None:
        """See that all learners begin with the same weights; those that go on from saved points have them."""

    def agree(self, own: Turn) -> Turn:
        """Return what all learners do now, given what this one wants; the first decides on points and evaluations."""

    def evaluate(self, evaluate: Callable[[], bool] | None) -> bool:
        """Return what the first learner's `evaluate` does; the others, which have none, wait for it."""

    def count_steps(self) -> None:
        """Let the collector's step count be that of all learners, after something was collected."""

    def sink(self, rows: RowSink) -> RowSink:
        """Return what takes a collector's segments on the way to `rows`."""

    def store(self, store: RowStore) -> RowStore:
        """Return what hands out the rows of `store` in step."""

    def leave(self) -> None:
        """Leave the others, once all have saved their points."""


class Alone:
    """Be the only learner: nothing to wait for."""

    def begin(self, *, goes_on: bool) -> None:
        """Begin."""

    def agree(self, own: Turn) -> Turn:
        """Return what this learner wants."""
        return own

    def evaluate(self, evaluate: Callable[[], bool] | None) -> bool:
        """Evaluate."""
        return evaluate is not None and evaluate()

    def count_steps(self) -> None:
        """Leave the count as it is."""

    def sink(self, rows: RowSink) -> RowSink:
        """Return the rows' own sink."""
        return rows

    def store(self, store: RowStore) -> RowStore:
        """Return the store itself."""
        return store

    def leave(self) -> None:
        """End."""


class InStep:
    """Be one of several learners, each of which runs a whole serial loop with its share.

    Every collective is made by all, in the same order: that of the loop. `parts` are those of this learner.
    `may_refuse` says that its buffer may have no rows for an update although it had some for an earlier one.
    """

    def __init__(self, group: LearnerGroup, parts: Components, *, may_refuse: bool) -> None:
        self._group = group
        self._parts = parts
        self._may_refuse = may_refuse
        self._steps = parts.collector.envstep  # that all learners know of
        self._equality = EqualityCheck(group, parts.policy)

    def begin(self, *, goes_on: bool) -> None:
        """Give all learners the first one's state, or check that those of saved points are the same."""
        mode = self._parts.policy.learn_mode
        if not goes_on:
            first = share_state(self._group, mode.state_dict() if self._group.rank == 0 else None)
            if self._group.rank:
                mode.load_state_dict(first)
        self._steps = self._parts.collector.envstep
        self._equality.check(self._parts.learner.train_iter)

    def agree(self, own: Turn) -> Turn:
        """Return what all do: the largest number of a signal, what the first wants of points and evaluations."""
        train_iter = self._parts.learner.train_iter
        if self._equality.is_due(train_iter):
            self._equality.check(train_iter)
        signal, saves, evaluates = self._group.max_int(own).tolist()
        return Turn(signal, bool(saves), bool(evaluates))

    def evaluate(self, evaluate: Callable[[], bool] | None) -> bool:
        """Evaluate on the first learner; the others wait, without a limit, as long as it lives."""
        return bool(self._group.broadcast_json(None if evaluate is None else evaluate()))

    def count_steps(self) -> None:
        """Add what the others have collected since the last count."""
        collector = self._parts.collector
        self._steps += int(self._group.sum_int([collector.envstep - self._steps])[0])
        collector.envstep = self._steps

    def sink(self, rows: RowSink) -> RowSink:
        """Return what counts the env steps of all before rows are stored."""
        return _CountedSink(self, rows)

    def put(self, segment: Segment, rows: RowSink) -> Order:
        """Put a segment of this learner's rows, with the env steps that all took for theirs."""
        before = self._steps
        self.count_steps()
        if isinstance(self._parts.statistics, SharedStatistics):
            self._parts.statistics.merge(self._group)
        return rows.put(replace(segment, env_steps=self._steps - before))

    def store(self, store: RowStore) -> RowStore:
        """Return what draws only where all can, and brings whole batches together where the policy takes those."""
        return _StoreInStep(
            self._group, store, whole=self._parts.policy.takes_whole_batches, may_refuse=self._may_refuse
        )

    def leave(self) -> None:
        """Have the first learner wait until the others have saved: the process that started them ends them after it."""
        if self._group.rank:
            self._group.announce(f"left/{self._group.rank}")
            return
        for rank in range(1, self._group.world_size):
            self._group.wait_for(f"left/{rank}", of=[rank])


class _CountedSink:
    """Be the sink of one learner's segments."""

    def __init__(self, step: InStep, rows: RowSink) -> None:
        self._step = step
        self._rows = rows

    def put(self, segment: Segment) -> Order:
        return self._step.put(segment, self._rows)

    def order(self, *, timeout_s: float) -> Order:
        return self._rows.order(timeout_s=timeout_s)


class _StoreInStep:
    """Draw from a store of this learner when the others draw from theirs, or none does: all make the same updates."""

    def __init__(self, group: LearnerGroup, store: RowStore, *, whole: bool, may_refuse: bool) -> None:
        self._group = group
        self._store = store
        self._whole = whole
        self._may_refuse = may_refuse
        self._all_have_drawn = False

    def push(self, data: Any, cur_collector_envstep: int) -> None:  # Any: rows of any kind, as in RowStore
        self._store.push(data, cur_collector_envstep=cur_collector_envstep)

    def sample(self, batch_size: int, cur_learner_iter: int) -> Sequence[Any] | None:
        drawn = self._store.sample(batch_size, cur_learner_iter)
        if self._may_refuse or not self._all_have_drawn:
            if self._group.max_int([drawn is None])[0]:
                return None
            self._all_have_drawn = True
        if drawn is None:
            raise CommError(
                f"learner rank {self._group.rank} has no rows for an update that the others make: its buffer has let "
                "go of rows that it had. Start one learner, or report the buffer's settings."
            )
        return self._joined(drawn) if self._whole else drawn

    def _joined(self, drawn: Sequence[Any]) -> Sequence[Any]:
        batch = as_batch(drawn)
        if batch is None:
            raise SchemaError(
                f"several learners share whole batches of columns; the rows here are a {type(drawn).__name__}. "
                "Let the policy's `segment` return a TransitionBatch."
            )
        return self._group.all_gather_columns(batch)

    def update(self, info: Mapping[str, Any]) -> None:
        self._store.update(info)

    def count(self) -> int:
        return self._store.count()
