"""Keep priorities of the places of a storage, and draw by them (Schaul et al. 2016, proportional variant)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ding_like.data.sum_tree import SumTree, as_leaves
from ding_like.errors import ConfigError, SchemaError
from ding_like.types import Array
from ding_like.utils.memory import check_buffer_memory
from ding_like.worker.replay_buffer.row_records import RowRecords, priorities_of
from ding_like.worker.replay_buffer.sampled_data import SampledDataMonitor

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
