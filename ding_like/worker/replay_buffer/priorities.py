"""Priorities of the places of a storage, and draws by them (Schaul et al. 2016, proportional variant)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from ding_like.data.batch import ROW_ID, TransitionBatch
from ding_like.data.sum_tree import SumTree, as_leaves, compiled_part
from ding_like.errors import SchemaError
from ding_like.types import Array, Config, Report
from ding_like.utils.processes import check_buffer_memory

NO_ITER = int(np.iinfo(np.int64).max)  # of a row without a learner iteration: it never gets stale
_EPSILON = (
    1e-5  # added to each given priority, so that a row of error 0 is sampled again (Schaul et al. 2016, section 3.3)
)
_LARGEST = float(np.finfo(np.float32).max)
_INF = float("inf")


class Priorities:
    """Priority, use and age of each place; place i is drawn with probability `p_i^alpha / sum_k p_k^alpha`.

    Its weight `(p_i^alpha / min_k)^-beta` is `(N P(i))^-beta` divided by the largest of all, so it is at most 1. New
    rows get the largest priority so far, 1 at first. A place that was used `max_use` times or is `max_staleness`
    iterations old gets priority 0 and is not drawn, until something new lies there.
    `cfg` is a full config of `AdvancedReplayBuffer`.
    """

    def __init__(self, capacity: int, cfg: Config) -> None:
        check_buffer_memory(capacity, row_bytes=33)  # 20 of columns, 5 of SumTree, 8 of a row at least
        self.alpha, self.beta = float(cfg["alpha"]), min(float(cfg["beta"]), 1.0)
        self._beta_step = (1.0 - self.beta) / cfg["anneal_step"] if cfg["anneal_step"] else 0.0
        self._max_use, self._max_staleness = cfg["max_use"], cfg["max_staleness"]
        self._min_rows_ratio = float(cfg["thruput_controller"]["sample_min_limit_ratio"])
        self._monitor = SampledDataMonitor(**cfg["monitor"]["sampled_data_attr"])
        self.priority = np.zeros(capacity, np.float32)
        self.use = np.zeros(capacity, np.int64)
        self.collect_iter = np.full(capacity, NO_ITER, np.int64)
        self._tree = SumTree(capacity)
        self._default_leaf = (np.nan, np.nan)  # the largest priority, and its weight in the tree
        self.clear()

    def clear(self) -> None:
        """Clear all places and the largest priority."""
        self._tree.clear()
        self.priority[:] = 0.0
        self.use[:] = 0
        self.collect_iter[:] = NO_ITER
        self.max_priority = 1.0
        self.num_live = 0  # places that can be drawn
        self._oldest = NO_ITER  # no live row was collected before

    def is_live(self, places: Array) -> Array:
        """Return which places can be drawn, bool [B]."""
        return self.priority.take(places) > 0

    def write_new(self, places: slice, collect_iter: Array | None) -> None:
        """Store new rows with the largest priority; `collect_iter` None: their learner iteration is unknown."""
        priority, leaf = self._default_leaf
        if priority != self.max_priority:  # seldom: it rarely rises
            priority = self.max_priority
            leaf = float(self._leaves(np.array([priority], np.float32))[0])
            self._default_leaf = (priority, leaf)
        if self.num_live < len(self.priority):
            self.num_live += places.stop - places.start - int(np.count_nonzero(self.priority[places]))
        self.priority[places] = priority
        self.use[places] = 0
        self._write_iters(places, collect_iter)
        self._tree.set_range(places.start, places.stop, leaf)

    def write(self, places: slice | Array, priorities: Array, collect_iter: Array, use: Array) -> None:
        """Store the columns of these places; priority 0 marks one that cannot be drawn."""
        self.num_live += int(np.count_nonzero(priorities)) - int(np.count_nonzero(self.priority[places]))
        self.priority[places] = priorities
        self.use[places] = use
        self._write_iters(places, collect_iter)
        leaves = self._leaves(priorities)
        if isinstance(places, slice):
            self._tree.set_range(places.start, places.stop, leaves)
        else:
            self._tree.set(places, leaves)

    def _write_iters(self, places: slice | Array, collect_iter: Array | None) -> None:
        self.collect_iter[places] = NO_ITER if collect_iter is None else collect_iter
        if collect_iter is not None:
            self._oldest = min(self._oldest, int(collect_iter.min(initial=NO_ITER)))

    def filled(self, given: Array) -> Array:
        """Return given priorities float32 [B] with the largest one, given or so far, in place of NaN."""
        is_missing = np.isnan(given)
        largest = max(given.max(initial=0.0, where=~is_missing), np.float32(self.max_priority))
        filled: Array = np.where(is_missing, largest, given)
        return filled

    def raise_largest(self, priorities: Array) -> None:
        """Set the priority of new rows to the largest of these [B], if that is the largest so far."""
        self.max_priority = max(self.max_priority, float(priorities.max()))

    def draw(self, size: int, rng: np.random.Generator, among: Array | None) -> Array | int:
        """Return places, one from each of `size` equal parts of the sum of weights; how many there are if too few.

        `among` [N] restricts the draw to these places.
        """
        if among is not None:
            among = among[self.is_live(among)]
        available = self.num_live if among is None else len(among)
        if size and (not available or available < size * self._min_rows_ratio):
            return available
        parts = rng.random(size)
        if among is None:
            return self._tree.draw(parts)
        if not size:
            return among[:0]
        parts = (parts + np.arange(size)) / size
        ends = self._tree.get(among).cumsum(dtype=np.float64)
        found: Array = among[np.minimum(ends.searchsorted(parts * ends[-1], side="right"), len(among) - 1)]
        return found

    def describe(self, places: Array, train_iter: int, *, next_id: int, next_row: int) -> dict[str, Array]:
        """Count a use of places [B] and return the buffer's own columns of the rows there.

        The next row gets `next_id` and lies at `next_row`; places follow each other. Staleness is -1 if it is unknown.
        """
        part, leaves = compiled_part(), self._tree.leaves_view
        if part is None:
            np.add.at(self.use, places, 1)  # a place that is given twice is used twice
            ids = ids_of(places, len(self.priority), next_id=next_id, next_row=next_row)
            priorities, uses = self.priority.take(places), self.use.take(places)
            weights = leaves.take(places).astype(np.float64)
            staleness = np.maximum(train_iter - self.collect_iter.take(places), -1)  # far below where unknown
        else:
            size = len(places)
            ids, staleness, uses = (np.empty(size, np.int64) for _ in range(3))
            priorities, weights = np.empty(size, np.float32), np.empty(size)
            part.rows.describe(
                np.ascontiguousarray(places, np.int64), leaves, self.priority, self.use, self.collect_iter,
                next_id, next_row, train_iter, ids, priorities, weights, staleness, uses, NO_ITER,
            )  # fmt: skip
        weights /= self._tree.min_positive()
        return {
            ROW_ID: ids,
            "replay_buffer_idx": places,
            "priority": priorities,
            "weight": (weights**-self.beta).astype(np.float32),
            "staleness": staleness,
            "use": uses,
        }

    def count_sample(self, places: Array, own: Mapping[str, Array]) -> dict[str, float] | None:
        """Remove the rows that a described sample used up; return averages for the log if they are due."""
        if not len(places):
            return None
        self.beta = min(self.beta + self._beta_step, 1.0)
        if self._max_use < _INF:
            self._remove(places[self.use.take(places) >= self._max_use])
        return self._monitor.add(own)

    def expire(self, train_iter: int) -> None:
        """Remove rows that are too old at this learner iteration."""
        newest = train_iter - self._max_staleness
        if self._oldest > newest:  # always with the default, inf
            return
        live = self.priority > 0
        old = live & (self.collect_iter <= newest)
        self._oldest = int(self.collect_iter[live & ~old].min(initial=NO_ITER))
        self._remove(np.flatnonzero(old))

    def update(self, places: Array, priorities: Array) -> None:
        """Give live places [B] new priorities float32 [B]; of a place that is given twice, the last stays."""
        if len(places):
            self.priority[places] = priorities
            self._tree.set_powers(places, priorities.astype(np.float64) ** self.alpha, priorities)
            self.raise_largest(priorities)

    def update_current(self, info: Report, *, next_id: int, next_row: int) -> bool:
        """Update places of a ring in C, for arrays as samples have them; return False for anything else."""
        part = compiled_part()
        places, ids, given = (info.get(name) for name in ("replay_buffer_idx", ROW_ID, "priority"))
        if part is None or not isinstance(given, np.ndarray) or given.dtype.kind != "f":
            return False
        if not (_is_vector(places) and _is_vector(ids) and places.shape == ids.shape == given.shape):
            return False
        kept, priorities = np.empty(len(places), np.int64), np.empty(len(places), np.float32)
        count, largest = part.rows.write_current(
            places, ids, np.ascontiguousarray(given, np.float64), self.priority, next_id, next_row,
            _EPSILON, _LARGEST, kept, priorities,
        )  # fmt: skip
        if count < 0:  # something is wrong, which `checked_update` names
            return False
        kept, priorities = kept[:count], priorities[:count]
        self._tree.set_powers(kept, priorities.astype(np.float64) ** self.alpha, priorities)
        self.max_priority = max(self.max_priority, largest)
        return True

    def _remove(self, places: Array) -> None:
        if len(places):
            self.priority[places] = 0.0
            self.num_live = int(np.count_nonzero(self.priority))
            self._tree.set(places, np.zeros(len(places), np.float32))

    def _leaves(self, priorities: Array) -> Array:
        """Return the tree's weights of priorities float32 [B]: their power, and 0 for 0."""
        return as_leaves(priorities.astype(np.float64) ** self.alpha, priorities)


class SampledDataMonitor:
    """Averages of priority, use and staleness over the last `average_range` of every `print_freq` samples."""

    def __init__(self, *, average_range: float, print_freq: float) -> None:
        self._print_freq = max(int(print_freq), 1)
        self._first = self._print_freq - min(max(int(average_range), 1), self._print_freq)
        self._num_samples = 0
        self._sums: dict[str, float] = {}

    def add(self, columns: Mapping[str, Array]) -> dict[str, float] | None:
        """Count a sample; return the averages when they are due."""
        if self._num_samples >= self._first:
            for name in ("use", "staleness", "priority"):
                for kind in ("avg", "max", "min") if name == "priority" else ("avg", "max"):
                    value = columns[name].mean() if kind == "avg" else getattr(columns[name], kind)()
                    self._sums[f"{name}_{kind}"] = self._sums.get(f"{name}_{kind}", 0.0) + float(value)
        self._num_samples += 1
        if self._num_samples < self._print_freq:
            return None
        averages = {name: value / (self._print_freq - self._first) for name, value in self._sums.items()}
        self._num_samples, self._sums = 0, {}
        return averages


def ids_of(places: Array, capacity: int, *, next_id: int, next_row: int) -> Array:
    """Return the ids of rows at places [B]: the newest has the last one, and places follow each other."""
    return next_id - capacity + (places - next_row) % capacity


def _is_vector(values: object) -> TypeGuard[Array]:
    """Return whether values are int64 [B] in one piece."""
    return (
        isinstance(values, np.ndarray) and values.dtype == np.int64 and values.ndim == 1 and values.flags.c_contiguous
    )


def given_priorities(rows: TransitionBatch | Sequence[Report]) -> Array | None:
    """Return the priorities of pushed rows and a little more, float32 [B]: NaN where a row has none, None if all.

    Raises SchemaError as `checked_priorities` does.
    """
    if isinstance(rows, TransitionBatch):
        return checked_priorities(rows["priority"]) if "priority" in rows.columns else None
    given = [row.get("priority") for row in rows]
    is_given = np.array([value is not None for value in given], bool)
    if not is_given.any():
        return None
    priorities = np.full(len(given), np.nan, np.float32)
    # An array or tensor of one is its number.
    numbers = [value.item() if getattr(value, "shape", None) == (1,) else value for value in given if value is not None]
    priorities[is_given] = checked_priorities(numbers)
    return priorities


def checked_priorities(values: npt.ArrayLike) -> Array:
    """Return priorities to store, float32 [B]: the given ones and a little more.

    Raises SchemaError for one that is negative or not finite, or if they are no vector of numbers.
    """
    try:
        given = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise SchemaError(f"priorities must be a vector of numbers: {error}.") from error
    if given.ndim != 1:
        raise SchemaError(f"priorities have the shape {given.shape}, expected one number a row.")
    # NaN is neither above nor below, and `min` returns it.
    if len(given) and not (given.min() >= 0 and given.max() <= _LARGEST):
        bad = np.flatnonzero(~((given >= 0) & (given <= _LARGEST)))
        raise SchemaError(
            f"{len(bad)} of {len(given)} priorities are negative, not finite or beyond float32, the first is "
            f"{given[bad[0]]} at {bad[0]}. Give absolute errors, and look for what made the loss diverge."
        )
    return (given + _EPSILON).astype(np.float32)


def collect_iters_of(rows: TransitionBatch | Sequence[Report]) -> Array | None:
    """Return the learner iteration in which each row was collected, int64 [B]; None if no row has one."""
    if isinstance(rows, TransitionBatch):
        column = rows.columns.get("collect_iter", rows.columns.get("policy_version"))
        if column is None:
            return None
        column = np.asarray(column).astype(np.int64)
        return column if column.ndim == 1 else column.reshape(len(rows), -1).min(axis=1)
    given = [row.get("collect_iter", row.get("policy_version", NO_ITER)) for row in rows]
    return np.array([int(np.min(value)) for value in given], np.int64)


def checked_update(info: Report, capacity: int) -> tuple[Array, Array, Array]:
    """Return (places int64, ids int64, priorities float32), [B] each, of an update; only of places that there are.

    Raises SchemaError for a priority that is negative or not finite, or a wrong shape.
    """
    names = ("replay_buffer_idx", ROW_ID, "priority")
    missing = [name for name in names if info.get(name) is None]
    if missing:
        raise SchemaError(
            f"an update of priorities lacks {', '.join(missing)}; give {', '.join(names)} as equally long vectors, "
            "the first two as the sample has them."
        )
    places, ids = (np.asarray(_on_host(info[name])) for name in names[:2])
    priorities = checked_priorities(_on_host(info["priority"]))
    if not (places.shape == ids.shape == priorities.shape):
        raise SchemaError(
            f"an update has replay_buffer_idx {places.shape}, replay_unique_id {ids.shape} and priority "
            f"{priorities.shape}, expected equally long vectors."
        )
    if len(places) and not (places.dtype.kind in "iu" and ids.dtype.kind in "iu"):
        raise SchemaError(f"replay_buffer_idx is {places.dtype} and replay_unique_id {ids.dtype}, expected integers.")
    places, ids = places.astype(np.int64, copy=False), ids.astype(np.int64, copy=False)
    inside = (places >= 0) & (places < capacity)
    return places[inside], ids[inside], priorities[inside]


def _on_host(values: npt.ArrayLike) -> Any:
    """Return a tensor as an array, anything else as it is."""
    return values.detach().cpu().numpy() if hasattr(values, "detach") else values
