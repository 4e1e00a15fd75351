"""Keep what a prioritised buffer knows of each row beside its data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ding_like.data.batch import TransitionBatch
from ding_like.data.compiled import compiled_part
from ding_like.errors import SchemaError
from ding_like.types import Array

NO_ITER = int(np.iinfo(np.int64).max)  # of a row that does not say when it was collected: it never gets stale
_EPSILON = 1e-5  # added to each given priority, so that a row of error 0 comes again (Schaul et al. 2016, section 3.3)
_LARGEST = float(np.finfo(np.float32).max)


class RowRecords:
    """Hold priority, use and age of the rows by place; a place of priority 0 has no row to sample."""

    def __init__(self, capacity: int) -> None:
        self.priority = np.zeros(capacity, np.float32)
        self.use = np.zeros(capacity, np.int64)
        self.collect_iter = np.full(capacity, NO_ITER, np.int64)
        self.num_live = 0
        self._oldest = NO_ITER  # no live row was collected before

    def is_live(self, places: Array) -> Array:
        """Say which places have a row to sample, bool [B]."""
        return self.priority.take(places) > 0

    def write(self, places: slice | Array, priority: Array, collect_iter: Array, use: Array) -> None:
        """Note new rows at these places."""
        self.num_live += int(np.count_nonzero(priority)) - int(np.count_nonzero(self.priority[places]))
        self.priority[places] = priority
        self.use[places] = use
        self.collect_iter[places] = collect_iter
        self._oldest = min(self._oldest, int(collect_iter.min(initial=NO_ITER)))

    def write_new(self, places: slice, priority: float, collect_iter: Array | None) -> None:
        """Note new rows of one priority above 0 at these places, None if they do not say when they were collected."""
        if self.num_live < len(self.priority):
            self.num_live += places.stop - places.start - int(np.count_nonzero(self.priority[places]))
        self.priority[places] = priority
        self.use[places] = 0
        if collect_iter is None:
            self.collect_iter[places] = NO_ITER
        else:
            self.collect_iter[places] = collect_iter
            self._oldest = min(self._oldest, int(collect_iter.min(initial=NO_ITER)))

    def add_use(self, places: Array) -> None:
        """Count that rows are used; a place that comes twice is used twice."""
        np.add.at(self.use, places, 1)

    def describe(
        self, places: Array, leaves: Array, *, next_id: int, next_row: int, now: int
    ) -> tuple[Array, Array, Array, Array, Array]:
        """Count one use of rows [B] and return their ids, priorities, leaves float64, staleness at `now` and uses.

        The next row gets `next_id` and lies at `next_row`; places follow each other. Staleness is -1 where nothing is
        known, and never below that.
        """
        part, size = compiled_part(), len(places)
        if part is None:
            self.add_use(places)
            return (
                ids_of(places, len(self.priority), next_id=next_id, next_row=next_row),
                self.priority.take(places),
                leaves.take(places).astype(np.float64),
                np.maximum(now - self.collect_iter.take(places), -1),  # what is not known is far below
                self.use.take(places),
            )
        ids, staleness, uses = (np.empty(size, np.int64) for _ in range(3))
        priorities, weights = np.empty(size, np.float32), np.empty(size)
        part.rows.describe(
            np.ascontiguousarray(places, np.int64), leaves, self.priority, self.use, self.collect_iter,
            next_id, next_row, now, ids, priorities, weights, staleness, uses, NO_ITER,
        )  # fmt: skip
        return ids, priorities, weights, staleness, uses

    def write_current(
        self, places: Any, ids: Any, given: Any, *, next_id: int, next_row: int
    ) -> tuple[Array, Array, float] | None:
        """Note updates int64 [B], int64 [B], [B] of rows still there; return (places, priorities, the largest).

        None, and nothing is changed: there is no compiled part, or something is wrong, which `priorities_of` says.
        """
        part = compiled_part()
        if part is None or not (_is_vector(places) and _is_vector(ids)):
            return None
        values = np.ascontiguousarray(given, np.float64)
        if not places.shape == ids.shape == values.shape:
            return None
        kept, priorities = np.empty(len(places), np.int64), np.empty(len(places), np.float32)
        count, largest = part.rows.write_current(
            places, ids, values, self.priority, next_id, next_row, _EPSILON, _LARGEST, kept, priorities
        )
        return None if count < 0 else (kept[:count], priorities[:count], largest)

    def remove(self, places: Array) -> None:
        """Take rows out; a place may come twice."""
        self.priority[places] = 0.0
        self.num_live = int(np.count_nonzero(self.priority))

    def collected_until(self, learner_iter: float) -> Array:
        """Return the places of live rows that were collected in this iteration or before."""
        if self._oldest > learner_iter:
            return np.arange(0)
        live = self.priority > 0
        old = live & (self.collect_iter <= learner_iter)
        self._oldest = int(self.collect_iter[live & ~old].min(initial=NO_ITER))
        return np.flatnonzero(old)

    def clear(self) -> None:
        """Forget all rows."""
        self.priority[:] = 0.0
        self.use[:] = 0
        self.collect_iter[:] = NO_ITER
        self.num_live = 0
        self._oldest = NO_ITER


def ids_of(places: Array, capacity: int, *, next_id: int, next_row: int) -> Array:
    """Return the ids of rows at places [B]: the newest has the last one, and places follow each other."""
    return next_id - capacity + (places - next_row) % capacity


def _is_vector(values: Any) -> bool:
    """Tell whether values are int64 [B] in one piece."""
    return (
        isinstance(values, np.ndarray) and values.dtype == np.int64 and values.ndim == 1 and values.flags.c_contiguous
    )


def priorities_of(rows: TransitionBatch | Mapping[str, Any] | Sequence[Mapping[str, Any]], default: float) -> Array:
    """Return the priorities to store, float32 [B]: what is given and a little more, else `default`.

    Raises SchemaError for one that is negative or not finite, or if they are no vector of numbers.
    """
    if isinstance(rows, (TransitionBatch, Mapping)):
        columns = rows.columns if isinstance(rows, TransitionBatch) else rows
        if "priority" not in columns:
            return np.full(len(rows), default, np.float32)
        return _checked(columns["priority"])
    return priorities_of_rows([row.get("priority") for row in rows], default)


def priorities_of_rows(given: Sequence[Any], default: float) -> Array:
    """Return the priorities to store, float32 [B]: what is given and a little more, the largest for None.

    That is the largest one given or, if that is more, `default`; a `default` of NaN stays. Raises SchemaError as
    `priorities_of` does.
    """
    said = _checked([value for value in given if value is not None])
    priorities = np.full(len(given), np.maximum(default, said.max(initial=0.0)), np.float32)  # NaN is not below
    priorities[np.array([value is not None for value in given], bool)] = said
    return priorities


def _checked(values: Any) -> Array:
    try:
        given = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise SchemaError(f"priorities must be a vector of numbers: {error}.") from error
    if given.ndim != 1:
        raise SchemaError(f"priorities have the shape {given.shape}, expected one number a row.")
    # NaN is neither above nor below, and comes out of `min`.
    if len(given) and not (given.min() >= 0 and given.max() <= _LARGEST):
        bad = np.flatnonzero(~((given >= 0) & (given <= _LARGEST)))
        raise SchemaError(
            f"{len(bad)} of {len(given)} priorities are negative, not finite or beyond float32, the first is "
            f"{given[bad[0]]} at {bad[0]}. Give absolute errors, and look for what made the loss diverge."
        )
    return (given + _EPSILON).astype(np.float32)


def collect_iters_of(rows: TransitionBatch | Sequence[Mapping[str, Any]]) -> Array | None:
    """Return the learner iteration in which each row was collected, int64 [B]; None if no row says."""
    if isinstance(rows, TransitionBatch):
        column = rows.columns.get("collect_iter", rows.columns.get("policy_version"))
        if column is None:
            return None
        column = np.asarray(column).astype(np.int64)
        return column if column.ndim == 1 else column.reshape(len(rows), -1).min(axis=1)
    given = [row.get("collect_iter", row.get("policy_version", NO_ITER)) for row in rows]
    return np.array([int(np.min(value)) for value in given], np.int64)
