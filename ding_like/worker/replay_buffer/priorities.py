"""Priorities of the places of a storage, and draws by them (Schaul et al. 2016, proportional variant)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ding_like.data.batch import TransitionBatch
from ding_like.data.compiled import compiled_part
from ding_like.data.sum_tree import SumTree, as_leaves
from ding_like.errors import ConfigError, SchemaError
from ding_like.types import Array
from ding_like.utils.machine import check_buffer_memory


class SampledDataMonitor:
    """Average a few of the sampled columns over the last `average_range` of every `print_freq` samples."""

    def __init__(self, average_range: int, print_freq: int) -> None:
        self._print_freq = max(int(print_freq), 1)
        self._first = self._print_freq - min(max(int(average_range), 1), self._print_freq)
        self._num_samples = 0
        self._sums: dict[str, float] = {}

    def add(self, columns: Mapping[str, Array]) -> dict[str, float] | None:
        """Look at a sample; return the averages when they are due."""
        if self._num_samples >= self._first:
            for name, value in _attributes(columns):
                self._sums[name] = self._sums.get(name, 0.0) + value
        self._num_samples += 1
        if self._num_samples < self._print_freq:
            return None
        averages = {name: value / (self._print_freq - self._first) for name, value in self._sums.items()}
        self._num_samples, self._sums = 0, {}
        return averages


def _attributes(columns: Mapping[str, Any]) -> list[tuple[str, float]]:
    use, staleness, priority = columns["use"], columns["staleness"], columns["priority"]
    return [
        ("use_avg", float(use.mean())),
        ("use_max", float(use.max())),
        ("staleness_avg", float(staleness.mean())),
        ("staleness_max", float(staleness.max())),
        ("priority_avg", float(priority.mean())),
        ("priority_max", float(priority.max())),
        ("priority_min", float(priority.min())),
    ]


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
    said = _checked([_one_number(value) for value in given if value is not None])
    priorities = np.full(len(given), np.maximum(default, said.max(initial=0.0)), np.float32)  # NaN is not below
    priorities[np.array([value is not None for value in given], bool)] = said
    return priorities


def _one_number(value: Any) -> Any:
    """Return the number in an array or tensor of one, anything else as it is."""
    return value.item() if getattr(value, "ndim", 0) and getattr(value, "shape", None) == (1,) else value


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


_INF = float("inf")


@dataclass(frozen=True)
class PrioritySettings:
    """Hold the settings of a prioritised buffer; `AdvancedReplayBuffer.config` says what they mean."""

    alpha: float
    beta: float
    beta_step: float  # added after each sample, up to 1
    max_use: float
    max_staleness: float
    min_rows_ratio: float  # a sample of n needs n times this many
    average_range: int
    print_freq: int

    @classmethod
    def from_cfg(cls, cfg: Mapping[str, Any]) -> PrioritySettings:
        """Read a buffer's config. Raises ConfigError for what makes no sense."""
        for name in ("alpha", "beta", "anneal_step"):
            if not 0 <= cfg[name] < _INF:
                raise ConfigError(f"replay_buffer.{name} is {cfg[name]}, expected a finite number from 0.")
        # Written so that NaN, which is neither, is refused as well.
        if not (cfg["max_use"] >= 1 and cfg["max_staleness"] > 0):
            raise ConfigError(
                f"max_use is {cfg['max_use']} and max_staleness {cfg['max_staleness']}: no row could ever be sampled. "
                "Give a max_use from 1 and a max_staleness above 0, or inf."
            )
        ratio = float(cfg["thruput_controller"]["sample_min_limit_ratio"])
        if not ratio >= 0:
            raise ConfigError(f"sample_min_limit_ratio is {ratio}, expected a number from 0.")
        beta = min(float(cfg["beta"]), 1.0)
        beta_step = (1.0 - beta) / cfg["anneal_step"] if cfg["anneal_step"] else 0.0
        monitor = cfg["monitor"]["sampled_data_attr"]
        return cls(
            float(cfg["alpha"]), beta, beta_step, cfg["max_use"], cfg["max_staleness"], ratio,
            int(monitor["average_range"]), int(monitor["print_freq"]),
        )  # fmt: skip


class Priorities:
    """Draw place i with probability `p_i^alpha / sum_k p_k^alpha`; its weight is `(p_i^alpha / min_k)^-beta`.

    That weight is `(N P(i))^-beta` divided by the largest of all, so it is at most 1. What comes new gets the largest
    priority so far, 1 at first. A place leaves, with priority 0, when it was used `max_use` times or is
    `max_staleness` iterations old, until something new lies there.
    """

    def __init__(self, capacity: int, settings: PrioritySettings) -> None:
        check_buffer_memory(capacity, row_bytes=33)  # 20 of RowRecords, 5 of SumTree, 8 of a row at least
        self.records = RowRecords(capacity)
        self.max_priority = 1.0
        self.beta = settings.beta
        self._settings = settings
        self.alpha = settings.alpha
        self._tree = SumTree(capacity)
        self._monitor = SampledDataMonitor(settings.average_range, settings.print_freq)
        self._default_leaf = (np.nan, np.nan)  # the largest priority, and what the tree keeps of it

    def write_new(self, places: slice, collect_iter: Array | None) -> None:
        """Note what is new at these places, with the largest priority; None: it does not say when it was collected."""
        priority, leaf = self._default_leaf
        if priority != self.max_priority:  # seldom: it rarely rises
            priority = self.max_priority
            leaf = float(self._leaves(np.array([priority], np.float32))[0])
            self._default_leaf = (priority, leaf)
        self.records.write_new(places, priority, collect_iter)
        self._tree.set_range(places.start, places.stop, leaf)

    def write(self, places: slice | Array, priorities: Array, collect_iter: Array, use: Array) -> None:
        """Note what is kept of these places; priority 0 marks one that has left, or that cannot be drawn."""
        self.records.write(places, priorities, collect_iter, use)
        leaves = self._leaves(priorities)
        if isinstance(places, slice):
            self._tree.set_range(places.start, places.stop, leaves)
        else:
            self._tree.set(places, leaves)

    def raise_largest(self, priorities: Array) -> None:
        """Let what comes new have the largest of these priorities [B], if that is the largest so far."""
        self.max_priority = max(self.max_priority, float(priorities.max()))

    def draw(self, size: int, rng: np.random.Generator, among: Array | None) -> Array | int:
        """Return places, one from each of `size` equal parts of the sum of weights; how many there are if too few.

        `among` [N] restricts the draw to these places.
        """
        available = self.records.num_live
        if among is not None:
            available = int(np.count_nonzero(self.records.is_live(among)))
        if size and (not available or available < size * self._settings.min_rows_ratio):
            return available
        parts = rng.random(size)
        if among is None:
            return self._tree.draw(parts)
        parts += np.arange(size)
        parts /= max(size, 1)
        among = among[self.records.is_live(among)]
        ends = self._tree.get(among).cumsum(dtype=np.float64)
        if not size:
            return among[:0]
        found: Array = among[np.minimum(ends.searchsorted(parts * ends[-1], side="right"), len(among) - 1)]
        return found

    def describe(self, places: Array, train_iter: int, *, next_id: int, next_row: int) -> dict[str, Array]:
        """Count a use of places [B] and return the buffer's own columns of what is sampled there."""
        ids, priorities, leaves, staleness, uses = self.records.describe(
            places, self._tree.leaves_view, next_id=next_id, next_row=next_row, now=train_iter
        )
        leaves /= self._tree.min_positive()
        return {
            "replay_unique_id": ids,
            "replay_buffer_idx": places,
            "priority": priorities,
            "weight": (leaves**-self.beta).astype(np.float32),
            "staleness": staleness,
            "use": uses,
        }

    def count_sample(self, places: Array, own: Mapping[str, Array]) -> dict[str, float] | None:
        """Let go what was used up by a sample that was described; return what to log of samples, if that is due."""
        if not len(places):
            return None
        self.beta = min(self.beta + self._settings.beta_step, 1.0)
        if self._settings.max_use < _INF:
            self._remove(places[self.records.use.take(places) >= self._settings.max_use])
        return self._monitor.add(own)

    def expire(self, train_iter: int) -> None:
        """Let go what is too old at this learner iteration."""
        if self._settings.max_staleness < _INF:
            self._remove(self.records.collected_until(train_iter - self._settings.max_staleness))

    def update(self, places: Array, priorities: Array) -> None:
        """Give live places [B] new priorities float32 [B]; of a place that comes twice, the last stays."""
        if len(places):
            self.records.priority[places] = priorities
            self._tree.set_powers(places, priorities.astype(np.float64) ** self.alpha, priorities)
            self.raise_largest(priorities)

    def update_current(self, info: Mapping[str, Any], *, next_id: int, next_row: int) -> bool:
        """Update places of a ring at once, for arrays as samples have them; return False for anything else."""
        places, ids, given = (info.get(name) for name in ("replay_buffer_idx", "replay_unique_id", "priority"))
        if not isinstance(given, np.ndarray) or given.dtype.kind != "f":
            return False
        kept = self.records.write_current(places, ids, given, next_id=next_id, next_row=next_row)
        if kept is None:
            return False
        places, priorities, largest = kept
        self._tree.set_powers(places, priorities.astype(np.float64) ** self.alpha, priorities)
        self.max_priority = max(self.max_priority, largest)
        return True

    def clear(self) -> None:
        """Forget all places and the largest priority."""
        self._tree.clear()
        self.records.clear()
        self.max_priority = 1.0

    def _remove(self, places: Array) -> None:
        if len(places):
            self.records.remove(places)
            self._tree.set(places, np.zeros(len(places), np.float32))

    def _leaves(self, priorities: Array) -> Array:
        """Return what the tree keeps of priorities float32 [B]: their power, and 0 for what has left."""
        return as_leaves(priorities.astype(np.float64) ** self.alpha, priorities)


def checked_update(info: Mapping[str, Any], capacity: int) -> tuple[Array, Array, Array]:
    """Return (places int64, ids int64, priorities float32), [B] each, of an update; only of places that there are.

    Raises SchemaError for a priority that is negative or not finite, or a wrong shape.
    """
    names = ("replay_buffer_idx", "replay_unique_id", "priority")
    missing = [name for name in names if info.get(name) is None]
    if missing:
        raise SchemaError(
            f"an update of priorities lacks {', '.join(missing)}; give {', '.join(names)} as equally long vectors, "
            "the first two as the sample has them."
        )
    places, ids = (np.asarray(_on_host(info[name])) for name in names[:2])
    priorities = priorities_of({"priority": _on_host(info["priority"])}, 1.0)
    if not (places.shape == ids.shape == priorities.shape):
        raise SchemaError(
            f"an update has replay_buffer_idx {places.shape}, replay_unique_id {ids.shape} and priority "
            f"{priorities.shape}, expected equally long vectors."
        )
    if len(places) and not (places.dtype.kind in "iu" and ids.dtype.kind in "iu"):
        raise SchemaError(f"replay_buffer_idx is {places.dtype} and replay_unique_id {ids.dtype}, expected integers.")
    places, ids = places.astype(np.int64, copy=False), ids.astype(np.int64, copy=False)
    if len(places) and (places.min() < 0 or places.max() >= capacity):
        inside = (places >= 0) & (places < capacity)
        return places[inside], ids[inside], priorities[inside]
    return places, ids, priorities


def _on_host(values: Any) -> Any:
    """Return a tensor as an array, anything else as it is."""
    return values.detach().cpu().numpy() if hasattr(values, "detach") else values
