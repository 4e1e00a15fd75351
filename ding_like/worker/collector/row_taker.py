"""Take training rows out of a rollout loop as soon as there are enough, and keep what is too many."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from ding_like.data.batch import TransitionBatch
from ding_like.types import CollectMode
from ding_like.worker.collector.loop import RolloutLoop
from ding_like.worker.collector.stop_rule import Rows

# Training rows as a policy's `segment` makes them: columns, or a list of whatever does not stack.
Samples: TypeAlias = "TransitionBatch | list[object]"


class Division(NamedTuple):
    """Hold the samples of one call, those of the next one, and how many are dropped."""

    samples: Samples
    surplus: Samples | None
    dropped: int


class RowTaker:
    """Gather `target` samples of one policy, `first` (an earlier surplus) before all others.

    `mark` is applied to samples as they are taken.
    """

    def __init__(
        self,
        loop: RolloutLoop,
        mode: CollectMode,
        target: int,
        *,
        first: Samples | None = None,
        mark: Callable[[Samples], Samples] | None = None,
    ) -> None:
        self._loop = loop
        self._mode = mode
        self._mark = mark
        self._target = target
        self._samples = first
        self._have = len(first) if first is not None else 0
        self._dropped = 0  # of `first`, because the columns of a later policy are others

    def rule(self) -> Rows:
        """Return the rule that stops a collection when the samples are there.

        It is not kept here: a circle of the two would hold the samples until the garbage collector comes by.
        """
        return Rows(self._target, self._count, have=self._have)

    def _count(self) -> int:
        """Take the rows of the loop if they are all that lacks; return how many samples there are."""
        lacks, loop = self._target - self._have, self._loop
        # A policy never makes more samples than rows, so most steps need no closer look.
        if 0 < lacks <= len(loop.rollout) and loop.num_ready(self._mode.num_ready) >= lacks:
            self._take()
        return self._have

    def _take(self) -> None:
        rows: Samples = self._loop.take(self._mode.segment)
        # Before they are joined: the surplus of the last call was marked in that call.
        rows = rows if self._mark is None else self._mark(rows)
        self._samples, dropped = join(self._samples, rows)
        self._dropped += dropped
        self._have = len(self._samples)

    def divide(self, *, on_policy: bool, drop_extra: bool) -> Division:
        """Return the samples, at most `target` with `drop_extra`, and what becomes of the others.

        They lead the next call, or are dropped, with the rows that no sample was made of, if the policy that made them
        is gone by then (`on_policy`). A collection that was stopped early has fewer samples: all that can be made.
        """
        if self._have < self._target and len(self._loop.rollout):
            self._take()
        samples: Samples = TransitionBatch({}) if self._samples is None else self._samples
        extra = max(self._have - self._target, 0) if drop_extra else 0
        if on_policy:
            dropped = self._dropped + extra + len(self._loop.rollout)
            self._loop.forget_rows()
            return Division(samples[: self._target] if extra else samples, None, dropped)
        if extra:
            return Division(samples[: self._target], samples[self._target :], self._dropped)
        return Division(samples, None, self._dropped)


def join(first: Samples | None, second: Samples) -> tuple[Samples, int]:
    """Return samples in order, batches as columns and anything else as a list, and how many of `first` were dropped.

    Those are dropped whose columns are others: an earlier policy left them, and no batch can hold both.
    """
    if first is None or not len(first):
        return second, 0
    if not len(second):
        return first, 0
    if not isinstance(first, TransitionBatch) or not isinstance(second, TransitionBatch):
        return [*first, *second], 0
    if first.schema != second.schema:
        return second, len(first)
    return TransitionBatch.concat([first, second]), 0
