"""Keep the newest rows and sample the important ones more often (Schaul et al. 2016, proportional variant)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ding_like.config.tree import deep_merge
from ding_like.data.batch import TransitionBatch
from ding_like.data.sum_tree import SumTree, as_leaves
from ding_like.errors import ConfigError, SchemaError
from ding_like.types import Array, State
from ding_like.utils.interval import Interval
from ding_like.utils.registries import BUFFER_REGISTRY
from ding_like.worker.replay_buffer.base import ReplayBuffer
from ding_like.worker.replay_buffer.limiter import RateLimiter
from ding_like.worker.replay_buffer.row_records import NO_ITER, RowRecords, collect_iters_of, ids_of, priorities_of
from ding_like.worker.replay_buffer.sampled_data import SampledDataMonitor
from ding_like.worker.replay_buffer.storage import ColumnStorage, ObjectStorage, RingStorage

# What the buffer itself says of a row; what a pushed row says under these names is not stored.
_OWN_COLUMNS = frozenset(("priority", "weight", "IS", "staleness", "use", "replay_unique_id", "replay_buffer_idx"))
_INF = float("inf")


@BUFFER_REGISTRY.register("advanced")
class AdvancedReplayBuffer(ReplayBuffer):
    """Sample row i with probability `p_i^alpha / sum_k p_k^alpha`; its `weight` is `(p_i^alpha / min_k)^-beta`.

    That weight is `(N P(i))^-beta` divided by the largest of all rows, so it is at most 1. A row that says no
    `priority` gets the largest one stored so far (1 at first). A row leaves when it was used `max_use` times or is
    `max_staleness` iterations old: its place stays empty until new rows come around.
    """

    config: dict[str, Any] = {
        "type": "advanced",
        "replay_buffer_size": 4096,
        # Length k of stacked frames: columns obs and next_obs [k, ...] are kept with each frame once; 0: as they come.
        "frame_stack": 0,
        # How often a row may be sampled.
        "max_use": _INF,
        # Learner iterations after which a row is too old; counted from its `collect_iter` or `policy_version`.
        "max_staleness": _INF,
        # 0: sample evenly, 1: in proportion to the priorities.
        "alpha": 0.6,
        # 0: weights of 1, 1: weights make up for the uneven sampling. Rises to 1 in `anneal_step` samples (0: stays).
        "beta": 0.4,
        "anneal_step": 1e5,
        # Rows are dicts whose 'data_id' names a file; the files of rows that are overwritten are deleted.
        "enable_track_used_data": False,
        # A key of DI-engine's configs: see `without_effect`.
        "deepcopy": False,
        "thruput_controller": {
            # Rows pushed per row sampled: above max, pushes are dropped; below min, there are no samples.
            "push_sample_rate_limit": {"max": _INF, "min": 0},
            "window_seconds": 30,
            # A sample of n rows needs n times this many rows in the buffer.
            "sample_min_limit_ratio": 1,
        },
        "monitor": {
            # Averages over the last `average_range` of every `print_freq` samples.
            "sampled_data_attr": {"average_range": 5, "print_freq": 200},
            # Seconds between two log lines about what went in and out.
            "periodic_thruput": {"seconds": 60},
        },
    }

    def __init__(
        self,
        cfg: Mapping[str, Any],
        tb_logger: Any = None,  # a MetricsSink, a SummaryWriter or None
        exp_name: str = "default_experiment",
        instance_name: str = "buffer",
        *,
        rng: np.random.Generator | None = None,
    ) -> None:
        # DI-engine's config says some of the common settings elsewhere, and others not at all.
        merged = deep_merge({**ReplayBuffer.config, **self.config}, cfg)
        merged["periodic_thruput_seconds"] = merged["monitor"]["periodic_thruput"]["seconds"]
        super().__init__(merged, tb_logger, exp_name, instance_name, rng=rng)

    def _configure(self, cfg: Mapping[str, Any]) -> None:
        for name in ("alpha", "beta", "anneal_step"):
            if not 0 <= cfg[name] < _INF:
                raise ConfigError(f"replay_buffer.{name} is {cfg[name]}, expected a finite number from 0.")
        # Written so that NaN, which is neither, is refused as well.
        if not (cfg["max_use"] >= 1 and cfg["max_staleness"] > 0):
            raise ConfigError(
                f"max_use is {cfg['max_use']} and max_staleness {cfg['max_staleness']}: no row could ever be sampled. "
                "Give a max_use from 1 and a max_staleness above 0, or inf."
            )
        self._alpha, self._beta = float(cfg["alpha"]), min(float(cfg["beta"]), 1.0)
        self._beta_step = (1.0 - self._beta) / cfg["anneal_step"] if cfg["anneal_step"] else 0.0
        self._max_use, self._max_staleness = cfg["max_use"], cfg["max_staleness"]
        self._limiter = RateLimiter.from_cfg(cfg["thruput_controller"])
        self._min_rows_ratio = float(cfg["thruput_controller"]["sample_min_limit_ratio"])
        if not self._min_rows_ratio >= 0:
            raise ConfigError(f"sample_min_limit_ratio is {self._min_rows_ratio}, expected a number from 0.")
        self._drops = Interval(cfg["periodic_thruput_seconds"], starts_due=True)
        self._monitor = SampledDataMonitor(**cfg["monitor"]["sampled_data_attr"])
        self._tree = SumTree(self._replay_buffer_size)
        self._records = RowRecords(self._replay_buffer_size)
        self._max_priority = 1.0
        self._default_leaf = (np.nan, np.nan)  # the largest priority, and what the tree keeps of it
        self._next_id = 0  # never falls, so that an id means one row for ever

    @property
    def beta(self) -> float:
        """Return how far weights make up for the uneven sampling: 0 not at all, 1 wholly."""
        return self._beta

    @beta.setter
    def beta(self, value: float) -> None:
        if not 0 <= value <= 1:
            raise ConfigError(f"beta is {value}, expected a number from 0 to 1.")
        self._beta = float(value)

    def count(self) -> int:
        """Return how many rows there are to sample from."""
        return self._records.num_live

    def push(self, data: Any, cur_collector_envstep: int) -> None:
        """Copy data in: a TransitionBatch, a list of mappings, or one mapping; `priority` may be among the keys.

        Drops the data, and says so in the log, while more than `push_sample_rate_limit.max` is pushed.
        Raises SchemaError, and changes nothing, for what does not fit or has a priority that is none.
        """
        if self._limiter is not None:
            with self._lock:
                may_push = self._limiter.may_push()
            if not may_push:
                if self._drops.pass_s():
                    self._logger.info("pushed data is dropped: %s", self._limiter)
                return
        super().push(data, cur_collector_envstep)

    def sample(self, size: int, cur_learner_iter: int, sample_range: slice | None = None) -> Sequence[Any] | None:
        """Return `size` rows by priority, each in memory of its own: a TransitionBatch, or a list of dicts.

        Each also has `replay_unique_id`, `replay_buffer_idx`, `priority`, `weight` (DI-engine's `IS`), `use` (this time
        included) and `staleness` (-1 if not known). `sample_range` restricts the draw by age: slice(-10, None) are the
        ten newest places. Returns None, and says why in the log, if there are too few rows.
        """
        if size < 0:
            raise SchemaError(f"a sample of {size} rows was asked for; give a number from 0.")
        with self._lock:
            storage = self._storage
            if storage is None:
                if size:
                    self._refuse(size, 0)
                return None if size else []
            self._remove_stale(cur_learner_iter)
            places = self._draw(storage, size, sample_range)
            if places is None:
                return None
            own = self._describe(places, cur_learner_iter)
            data = _join(storage.gather(places), own)
            self._count_sampled(places)
            averages = self._monitor.add(own) if size else None
        self._train_iter = cur_learner_iter
        if averages is not None:
            self._report_averages(averages)
        self._report(self._meter.add(sampled_out=size))
        return data

    def update(self, info: Mapping[str, Any]) -> None:
        """Give rows new priorities: arrays or lists `replay_buffer_idx`, `replay_unique_id` and `priority`, all [B].

        Rows that have left the buffer are passed over; of a row that comes twice the last priority stays.
        Raises SchemaError, and changes nothing, for a priority that is negative or not finite, or a wrong shape.
        """
        if self._update_at_once(info):
            return
        places, ids, priorities = _checked_update(info)
        with self._lock:
            storage = self._storage
            if storage is None or not len(places):
                return
            if places.min() < 0 or places.max() >= storage.capacity:
                inside = (places >= 0) & (places < storage.capacity)
                places, ids, priorities = places[inside], ids[inside], priorities[inside]
            still = (self._ids(storage, places) == ids) & self._records.is_live(places)
            if not still.all():
                places, priorities = places[still], priorities[still]
            self._set_priorities(places, priorities)

    def _update_at_once(self, info: Mapping[str, Any]) -> bool:
        """Do `update` for arrays as samples have them; return False, having changed nothing, for anything else."""
        places, ids, given = (info.get(name) for name in ("replay_buffer_idx", "replay_unique_id", "priority"))
        if not isinstance(given, np.ndarray) or given.dtype.kind != "f":
            return False
        with self._lock:
            storage = self._storage
            if storage is None:
                return False
            kept = self._records.write_current(places, ids, given, next_id=self._next_id, next_row=storage.next_row)
            if kept is None:
                return False
            places, priorities, largest = kept
            self._tree.set_powers(places, priorities.astype(np.float64) ** self._alpha, priorities)
            self._max_priority = max(self._max_priority, largest)
        return True

    def load_state_dict(self, _state_dict: State, deepcopy: bool = False) -> None:
        """Take over what `state_dict` returned, so that equal calls give equal samples; all is copied in any case."""
        super().load_state_dict(_state_dict)

    def _draw(self, storage: RingStorage, size: int, sample_range: slice | None) -> Array | None:
        """Return places int64[size], one from each of `size` equal parts of the sum of weights; None if refused."""
        if self._limiter is not None and not self._limiter.may_sample():
            if self._refusals.pass_s():
                self._logger.info("no sample of %d rows: %s", size, self._limiter)
            return None
        rows = None
        if sample_range is not None:
            rows = storage.rows(np.arange(storage.count)[sample_range]) % storage.capacity
        available = self._records.num_live if rows is None else int(np.count_nonzero(self._records.is_live(rows)))
        if size and (not available or available < size * self._min_rows_ratio):
            self._refuse(size, available)
            return None
        parts = self._rng.random(size)
        if rows is None:
            return self._tree.draw(parts)
        parts += np.arange(size)
        parts /= max(size, 1)
        rows = rows[self._records.is_live(rows)]
        ends = self._tree.get(rows).cumsum(dtype=np.float64)
        return rows[np.minimum(ends.searchsorted(parts * ends[-1], side="right"), len(rows) - 1)] if size else rows[:0]

    def _describe(self, places: Array, cur_learner_iter: int) -> dict[str, Array]:
        """Return the buffer's own columns of rows that are about to be sampled."""
        assert self._storage is not None, "there are rows"
        ids, priorities, leaves, staleness, uses = self._records.describe(
            places, self._tree.leaves_view, next_id=self._next_id, next_row=self._storage.next_row, now=cur_learner_iter
        )
        leaves /= self._tree.min_positive()
        return {
            "replay_unique_id": ids,
            "replay_buffer_idx": places,
            "priority": priorities,
            "weight": (leaves**-self._beta).astype(np.float32),
            "staleness": staleness,
            "use": uses,
        }

    def _count_sampled(self, places: Array) -> None:
        self._beta = min(self._beta + self._beta_step, 1.0)
        if self._limiter is not None:
            self._limiter.add(sampled=len(places))
        if self._max_use < _INF:
            self._remove(places[self._records.use.take(places) >= self._max_use])

    def _remove_stale(self, cur_learner_iter: int) -> None:
        if self._max_staleness < _INF:
            self._remove(self._records.collected_until(cur_learner_iter - self._max_staleness))

    def _remove(self, places: Array) -> None:
        if len(places):
            self._records.remove(places)
            self._tree.set(places, np.zeros(len(places), np.float32))

    def _set_priorities(self, places: Array, priorities: Array) -> None:
        if len(places):
            self._records.priority[places] = priorities
            self._tree.set_powers(places, priorities.astype(np.float64) ** self._alpha, priorities)
            self._max_priority = max(self._max_priority, float(priorities.max()))

    def _leaves(self, priorities: Array) -> Array:
        """Return what the tree keeps of priorities float32 [B]: their power, and 0 for rows that have left."""
        return as_leaves(priorities.astype(np.float64) ** self._alpha, priorities)

    def _ids(self, storage: RingStorage, places: Array) -> Array:
        """Return the ids of rows: the newest has the last one, and places follow each other."""
        return ids_of(places, storage.capacity, next_id=self._next_id, next_row=storage.next_row)

    def _new_storage(self, rows: Sequence[Any]) -> ColumnStorage | ObjectStorage:
        return super()._new_storage(_stored_part(rows))

    def _store(self, storage: RingStorage, rows: Sequence[Any]) -> None:
        stored = _stored_part(rows)
        has_priorities = not isinstance(rows, TransitionBatch) or "priority" in rows.columns
        # Most rows say none and get the largest: one number does for all.
        priorities = priorities_of(rows, self._max_priority) if has_priorities else None
        since = collect_iters_of(rows)
        storage.append(stored)
        self._next_id += len(rows)
        if self._limiter is not None:
            self._limiter.add(pushed=len(rows))
        kept = min(len(rows), storage.capacity)
        if priorities is None:
            self._record_alike(storage, kept, None if since is None else since[-kept:])
            return
        self._max_priority = max(self._max_priority, float(priorities.max()))
        since = np.full(kept, NO_ITER) if since is None else since[-kept:]
        self._record(storage, priorities[-kept:], since, np.zeros(kept, np.int64))

    def _record_alike(self, storage: RingStorage, size: int, since: Array | None) -> None:
        """Note that the newest `size` rows of the storage have the largest priority."""
        priority, leaf = self._default_leaf
        if priority != self._max_priority:  # seldom: it rarely rises
            priority = self._max_priority
            leaf = float(self._leaves(np.array([priority], np.float32))[0])
            self._default_leaf = (priority, leaf)
        for places, part in _newest(storage, size):
            self._records.write_new(places, priority, None if since is None else since[part])
            self._tree.set_range(places.start, places.stop, leaf)

    def _record(self, storage: RingStorage, priorities: Array, since: Array, use: Array) -> None:
        """Note what is kept beside the newest rows of the storage, oldest first."""
        for places, part in _newest(storage, len(priorities)):
            self._records.write(places, priorities[part], since[part], use[part])
            self._tree.set_range(places.start, places.stop, self._leaves(priorities[part]))

    def _forget(self) -> None:
        self._tree.clear()
        self._records.clear()
        self._max_priority = 1.0
        if self._limiter is not None:
            self._limiter.clear()

    def _dump(self) -> dict[str, Any] | list[Any]:
        dump = super()._dump()
        if self._storage is None:
            return dump
        priorities = self._records.priority[self._storage.rows(np.arange(self._storage.count))]
        if isinstance(dump, dict):
            return {**dump, "priority": priorities}
        return _join(dump, {"priority": priorities})

    def _append_dump(self, dump: dict[str, Any] | list[Any]) -> None:
        largest = self._max_priority
        super()._append_dump(dump)
        if isinstance(dump, dict):
            exact = dump.get("priority", ())
        else:
            exact = [np.nan if row.get("priority") is None else row["priority"] for row in dump]
        if self._storage is not None and len(exact):
            self._restore_priorities(self._storage, np.asarray(exact, np.float32)[-self._storage.capacity :])
            self._max_priority = max(largest, float(self._records.priority.max()))

    def _restore_priorities(self, storage: RingStorage, priorities: Array) -> None:
        """Give the newest rows the priorities that they were saved with: 0 if they had left, NaN for none."""
        for places, part in _newest(storage, len(priorities)):
            records = self._records
            old = records.priority[places]
            exact = np.where(np.isnan(priorities[part]), old, priorities[part])
            records.write(places, exact, records.collect_iter[places].copy(), records.use[places].copy())
            self._tree.set_range(places.start, places.stop, self._leaves(exact))

    def _own_state(self) -> State:
        storage, records = self._storage, self._records
        rows = np.arange(0) if storage is None else storage.rows(np.arange(storage.count))
        return {
            "use": records.use[rows],
            "collect_iter": records.collect_iter[rows],
            "first_place": 0 if storage is None else (storage.next_row - storage.count) % storage.capacity,
            "next_id": self._next_id,
            "max_priority": self._max_priority,
            "beta": self._beta,
            "limiter": None if self._limiter is None else self._limiter.state_dict(),
        }

    def _load_own_state(self, state: State) -> None:
        self._next_id, self._beta = state["next_id"], state["beta"]
        storage = self._storage
        if storage is not None:
            priorities = self._records.priority[storage.rows(np.arange(storage.count))]
            rows = storage.dump()
            # Each row back to its place: samples depend on it, and learners know rows by it.
            storage.next_row, storage.count = state["first_place"] % storage.capacity, 0
            storage.append(rows)
            self._forget()
            kept = len(rows)
            self._record(storage, priorities, state["collect_iter"][-kept:], state["use"][-kept:])
        self._max_priority = state["max_priority"]
        # None where the saved buffer had no limits, or is of before they were saved: rates begin anew.
        if self._limiter is not None and state.get("limiter") is not None:
            self._limiter.load_state_dict(state["limiter"])

    def _report_averages(self, averages: Mapping[str, float]) -> None:
        self._logger.info("sampled rows: %s", ", ".join(f"{name} {value:g}" for name, value in averages.items()))
        if self._add_scalar is not None:
            for name, value in averages.items():
                self._add_scalar(f"{self._instance_name}_iter/{name}", value, self._train_iter)
                self._add_scalar(f"{self._instance_name}_step/{name}", value, self._env_step)


def _newest(storage: RingStorage, size: int) -> Iterator[tuple[slice, slice]]:
    """Yield where the newest `size` rows lie: (places, which of the rows), in one or two parts."""
    start = (storage.next_row - size) % storage.capacity
    first = min(size, storage.capacity - start)
    yield slice(start, start + first), slice(0, first)
    if first < size:
        yield slice(0, size - first), slice(first, size)


def _stored_part(rows: Sequence[Any]) -> Sequence[Any]:
    """Return rows without the buffer's own columns. Raises SchemaError for what is no mapping."""
    if isinstance(rows, TransitionBatch):
        if _OWN_COLUMNS.isdisjoint(rows.columns):
            return rows
        return rows.select(name for name in rows.columns if name not in _OWN_COLUMNS)
    for row in rows:
        if not isinstance(row, Mapping):
            raise SchemaError(
                f"a prioritised buffer keeps mappings, got a {type(row).__name__}. Push dicts, or use type='naive'."
            )
    return [{key: value for key, value in row.items() if key not in _OWN_COLUMNS} for row in rows]


def _join(data: Sequence[Any], own: dict[str, Array]) -> Any:
    """Return rows with the buffer's own columns; dicts get DI-engine's name of the weight as well."""
    if isinstance(data, TransitionBatch):
        return TransitionBatch.of_length(len(data), {**data.columns, **own})
    if "weight" in own:
        own = {**own, "IS": own["weight"]}
    values = zip(*(column.tolist() for column in own.values()), strict=True)
    return [{**row, **dict(zip(own, value, strict=True))} for row, value in zip(data, values, strict=True)]


def _checked_update(info: Mapping[str, Any]) -> tuple[Array, Array, Array]:
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
    return places.astype(np.int64, copy=False), ids.astype(np.int64, copy=False), priorities


def _on_host(values: Any) -> Any:
    """Return a tensor as an array, anything else as it is."""
    return values.detach().cpu().numpy() if hasattr(values, "detach") else values
