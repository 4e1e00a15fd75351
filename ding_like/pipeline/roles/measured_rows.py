"""Measure how old the rows are that a learner is given, and the gradients that it applies."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ding_like.comm.channels import Batch
from ding_like.comm.local import LocalRows
from ding_like.data.batch import TransitionBatch
from ding_like.data.sequence_batch import SequenceBatch
from ding_like.types import Array

_RECENT = 100  # batches and gradients that are averaged


class MeasuredRows:
    """Be a BatchSource that hands on what another gives, and keep its ages.

    `PolicyLag` is the number of updates between the weights that collected a batch and those that its gradient is
    computed with, `GradientAsynchrony` the number between those and the ones that it is applied to.
    """

    def __init__(self, rows: LocalRows, *, train_iter: Callable[[], int], waits: bool = False) -> None:
        """Measure lags when a batch is drawn; where it `waits` then, whoever computes its gradient calls `note_lag`."""
        self._rows = rows
        self._train_iter = train_iter
        self._waits = waits
        self._lags: deque[float] = deque(maxlen=_RECENT)
        self._asynchronies: deque[float] = deque(maxlen=_RECENT)
        self.rows_not_learned = 0  # of minibatches whose other rows were learned from
        self.stale_gradients = 0  # that were older than allowed

    @property
    def finished(self) -> bool:
        return self._rows.finished

    @property
    def env_step(self) -> int:
        return self._rows.env_step

    def next(self, *, timeout_s: float) -> Batch | None:
        batch = self._rows.next(timeout_s=timeout_s)
        if batch is not None and not self._waits:
            self.note_lag(batch, self._train_iter())
        return batch

    def note_lag(self, batch: Batch, version: int) -> None:
        """Take note of a batch whose gradient is computed with the weights of so many updates."""
        if isinstance(batch, (TransitionBatch, SequenceBatch)):
            collected = batch.columns.get("policy_version")
            if collected is not None:  # np.mean takes thrice as long
                self._lags.append(version - np.add.reduce(collected) / len(collected))

    def feedback(
        self,
        train_iter: int,
        *,
        priority: Array | None,
        info: Callable[[], Mapping[str, Any]],
        batch: Batch | None = None,
    ) -> None:
        self._rows.feedback(train_iter, priority=priority, info=info, batch=batch)

    def note_applied(self, asynchrony: int) -> None:
        """Take note of a gradient that is so many updates old when it is applied."""
        self._asynchronies.append(asynchrony)

    def means(self) -> dict[str, float]:
        """Return the means over the last batches and gradients, and what was not learned from."""
        found = {
            "rows_not_learned": float(self.rows_not_learned),
            "stale_gradients": float(self.stale_gradients),
            "GradientAsynchrony": sum(self._asynchronies) / max(len(self._asynchronies), 1),
        }
        if self._lags:
            found["PolicyLag"] = float(sum(self._lags) / len(self._lags))
        return found

    def close(self) -> None:
        """Do nothing: the rows are their owner's."""
