"""Draw the important rows of a ring more often."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ding_like.data.batch import TransitionBatch
from ding_like.data.row_ids import ROW_ID, as_numbers, as_text
from ding_like.errors import SchemaError
from ding_like.types import Array, State
from ding_like.utils.interval import Interval
from ding_like.worker.replay_buffer.priorities import Priorities, PrioritySettings, checked_update
from ding_like.worker.replay_buffer.row_records import (
    NO_ITER,
    collect_iters_of,
    ids_of,
    priorities_of,
    priorities_of_rows,
)
from ding_like.worker.replay_buffer.sampler import Sampler
from ding_like.worker.replay_buffer.storage import RingStorage
from ding_like.worker.replay_buffer.store import Dump, StorageT

logger = logging.getLogger(__name__)

_REPORT_STRAYS_S = 60.0

# What the buffer itself says of a row; what a pushed row says under these names is not stored.
_OWN_COLUMNS = frozenset(("priority", "weight", "IS", "staleness", "use", "replay_unique_id", "replay_buffer_idx"))

# (priorities [B], None: the largest for all; learner iterations [B], None: no row says).
_Own = tuple[Array | None, Array | None]


class ByPriority(Sampler[StorageT]):
    """Draw what has a priority; it comes with `weight`, and with the place and the id that an update names it by."""

    def __init__(self, capacity: int, settings: PrioritySettings) -> None:
        self.priorities = Priorities(capacity, settings)
        self._next_id = 0  # never falls, so that an id means one row for ever

        self._strays = Interval(_REPORT_STRAYS_S, starts_due=True)

    def prepare(self, data: Any) -> tuple[Any, list[Any] | None]:
        """Return rows that are dicts without the buffer's own entries, and the priorities that they say, if any does.

        What is not a dict is left out of a list, and the log says so.
        """
        if isinstance(data, TransitionBatch) or not isinstance(data, (list, tuple, Mapping)):
            return data, None
        rows = [data] if isinstance(data, Mapping) else data
        kept = [row for row in rows if isinstance(row, Mapping)]
        if len(kept) < len(rows) and kept and self._strays.pass_s():
            stray = next(row for row in rows if not isinstance(row, Mapping))
            logger.warning(
                "a prioritised buffer keeps dicts: %d of %d pushed items are none (%r, say) and were left out.",
                len(rows) - len(kept),
                len(rows),
                stray,
            )
        if not kept or all(_OWN_COLUMNS.isdisjoint(row) for row in kept):
            return kept or data, None
        return without_own(kept), [row.get("priority") for row in kept]

    def _with_numbers(self, info: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return an update whose ids are numbers."""
        ids = info.get(ROW_ID)
        numbers = as_numbers(ids, self.buffer_name)
        return info if numbers is ids else {**info, ROW_ID: numbers}

    def count(self, storage: StorageT) -> int:
        return self.priorities.records.num_live

    def expire(self, train_iter: int) -> None:
        self.priorities.expire(train_iter)

    def draw(
        self,
        storage: StorageT,
        size: int,
        *,
        train_iter: int,
        ages: slice | None,
        replace: bool,
        rng: np.random.Generator,
    ) -> Array | int:
        if size:
            self.priorities.expire(train_iter)
        return self.priorities.draw(size, rng, None if ages is None else self._of_ages(storage, ages))

    @abstractmethod
    def _of_ages(self, storage: StorageT, ages: slice) -> Array:
        """Return the places of the rows of these ages."""


class PrioritisedSampler(ByPriority[RingStorage]):
    """Draw rows by priority."""

    def split(self, rows: Sequence[Any], known: Any = None) -> tuple[Sequence[Any], _Own]:
        stored = stored_part(rows)
        if known is not None:
            return stored, (priorities_of_rows(known, self.priorities.max_priority), collect_iters_of(rows))
        has_priorities = not isinstance(rows, TransitionBatch) or "priority" in rows.columns
        # Most rows say none and get the largest: one number does for all.
        given = priorities_of(rows, self.priorities.max_priority) if has_priorities else None
        return stored, (given, collect_iters_of(rows))

    def added(self, storage: RingStorage, num_rows: int, own: _Own) -> None:
        given, since = own
        self._next_id += num_rows
        kept = min(num_rows, storage.capacity)
        since = None if since is None else since[-kept:]
        if given is None:
            for places, part in _newest(storage, kept):
                self.priorities.write_new(places, None if since is None else since[part])
            return
        self.priorities.raise_largest(given)
        self._write(
            storage, given[-kept:], np.full(kept, NO_ITER) if since is None else since, np.zeros(kept, np.int64)
        )

    def _write(self, storage: RingStorage, priorities: Array, since: Array, use: Array) -> None:
        """Note what is kept beside the newest rows of the storage, oldest first."""
        for places, part in _newest(storage, len(priorities)):
            self.priorities.write(places, priorities[part], since[part], use[part])

    def _of_ages(self, storage: RingStorage, ages: slice) -> Array:
        return storage.rows(np.arange(storage.count)[ages]) % storage.capacity

    def gather(self, storage: RingStorage, places: Array, train_iter: int) -> Sequence[Any]:
        """Return rows with `replay_unique_id`, `replay_buffer_idx`, `priority`, `weight` (DI-engine's `IS`), and more.

        Of objects, the rows are dicts. `use` counts this time too, `staleness` is -1 if it is not known.
        """
        own = self.priorities.describe(places, train_iter, next_id=self._next_id, next_row=storage.next_row)
        data = _join(storage.gather(places), own, self.buffer_name)
        self.averages = self.priorities.count_sample(places, own)
        return data

    def update(self, storage: RingStorage | None, info: Mapping[str, Any]) -> bool:
        where: dict[str, int] = {"next_id": self._next_id, "next_row": 0 if storage is None else storage.next_row}
        if storage is not None and self.priorities.update_current(info, **where):
            return True
        places, ids, priorities = checked_update(self._with_numbers(info), 0 if storage is None else storage.capacity)
        if storage is not None and len(places):
            is_there = ids_of(places, storage.capacity, **where) == ids
            still = is_there & self.priorities.records.is_live(places)
            self.priorities.update(places[still], priorities[still])
        return True

    def clear(self) -> None:
        self.priorities.clear()

    def dump(self, storage: RingStorage, data: Dump) -> Dump:
        priorities = self.priorities.records.priority[_by_age(storage)]
        if isinstance(data, dict):
            return {**data, "priority": priorities}
        rows: list[Any] = _join(data, {"priority": priorities}, self.buffer_name)
        return rows

    def split_dump(self, data: Dump) -> tuple[Dump, Any]:
        if isinstance(data, dict):
            return {name: column for name, column in data.items() if name != "priority"}, data.get("priority")
        given = [np.nan if row.get("priority") is None else row["priority"] for row in data]
        return [{name: value for name, value in row.items() if name != "priority"} for row in data], given or None

    def restore(self, storage: RingStorage, own: Any) -> None:
        """Give the newest rows the priorities that they were saved with: 0 if they had left, NaN for none."""
        given, records = np.asarray(own, np.float32)[-storage.capacity :], self.priorities.records
        for places, part in _newest(storage, len(given)):
            exact = np.where(np.isnan(given[part]), records.priority[places], given[part])
            self.priorities.write(places, exact, records.collect_iter[places].copy(), records.use[places].copy())
        self.priorities.raise_largest(records.priority)

    def state_dict(self, storage: RingStorage | None) -> State:
        records, priorities = self.priorities.records, self.priorities
        rows = np.arange(0) if storage is None else _by_age(storage)
        return {
            "use": records.use[rows],
            "collect_iter": records.collect_iter[rows],
            "first_place": 0 if storage is None else (storage.next_row - storage.count) % storage.capacity,
            "next_id": self._next_id,
            "max_priority": priorities.max_priority,
            "beta": priorities.beta,
        }

    def load_state_dict(self, storage: RingStorage | None, state: State) -> None:
        self._next_id, self.priorities.beta = state["next_id"], state["beta"]
        if storage is not None:
            _, given = self.split_dump(state["data"])
            kept = storage.count
            self.priorities.clear()
            own = (np.asarray(given, np.float32), state["collect_iter"], state["use"])
            self._write(storage, *(column[-kept:] for column in own))
        self.priorities.max_priority = state["max_priority"]


def _by_age(storage: RingStorage) -> Array:
    """Return the places of all rows, oldest first."""
    return storage.rows(np.arange(storage.count))


def _newest(storage: RingStorage, size: int) -> Iterator[tuple[slice, slice]]:
    """Yield where the newest `size` rows lie: (places, which of the rows), in one or two parts."""
    start = (storage.next_row - size) % storage.capacity
    first = min(size, storage.capacity - start)
    yield slice(start, start + first), slice(0, first)
    if first < size:
        yield slice(0, size - first), slice(first, size)


def stored_part(rows: Sequence[Any]) -> Sequence[Any]:
    """Return rows without the buffer's own columns. Raises SchemaError for what is not a mapping."""
    if isinstance(rows, TransitionBatch):
        if _OWN_COLUMNS.isdisjoint(rows.columns):
            return rows
        return rows.select(name for name in rows.columns if name not in _OWN_COLUMNS)
    for row in rows:
        if not isinstance(row, Mapping):
            raise SchemaError(
                f"a prioritised buffer keeps mappings, got a {type(row).__name__}. Push dicts, or use type='naive'."
            )
    return without_own(rows)


def without_own(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return dicts without what the buffer itself says of a row."""
    return [{key: value for key, value in row.items() if key not in _OWN_COLUMNS} for row in rows]


def _join(data: Sequence[Any], own: dict[str, Array], buffer_name: str) -> Any:
    """Return rows with the buffer's own columns; dicts get DI-engine's name of the weight, and its ids."""
    if isinstance(data, TransitionBatch):
        batch = TransitionBatch.of_length(len(data), {**data.columns, **own})
        batch.buffer_name = buffer_name
        return batch
    if "weight" in own:
        own = {**own, "IS": own["weight"]}
    columns = {name: column.tolist() for name, column in own.items()}
    if ROW_ID in columns:
        columns[ROW_ID] = [as_text(buffer_name, number) for number in columns[ROW_ID]]
    values = zip(*columns.values(), strict=True)
    return [{**row, **dict(zip(own, value, strict=True))} for row, value in zip(data, values, strict=True)]
