"""Samplers: how data are drawn, evenly or by priority, as rows or as windows, and the columns of a sample."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias

import numpy as np
from numpy.random import Generator

from ding_like.data.batch import ROW_ID, SequenceBatch, TransitionBatch, as_numbers, as_text
from ding_like.data.sum_tree import first_distinct
from ding_like.errors import SchemaError
from ding_like.types import Array, Config, Report, SampleUnit, State
from ding_like.utils.measure import Interval
from ding_like.worker.replay_buffer.priorities import (
    NO_ITER,
    Priorities,
    checked_update,
    collect_iters_of,
    given_priorities,
    ids_of,
)
from ding_like.worker.replay_buffer.storage import Dump, Pushed, RingStorage, Rows, StorageT, StreamStorage

logger = logging.getLogger(__name__)

# The part of pushed data, or of a data file, that a sampler keeps itself: priorities, for instance.
OwnPart: TypeAlias = Any

_SPARE = 8  # draws beyond a sample's size: less than one is drawn twice where samples are small beside the buffer
_NOWHERE = np.arange(0)


class Sampler(ABC, Generic[StorageT]):
    """Rule that draws places of a storage and makes a sample of them.

    `unit` is one item of a sample. The buffer holds its lock around every call.
    """

    unit: SampleUnit = "row"
    buffer_name = "buffer"  # the beginning of rows' ids, where they are text
    # Averages of the last samples for the log, when they are due.
    averages: Mapping[str, float] | None = None

    def split(self, data: Pushed) -> tuple[Pushed, OwnPart]:
        """Return (pushed data as the store keeps them, the part that the sampler keeps, for `added`).

        Raises SchemaError for invalid data.
        """
        return data, None

    def added(self, storage: StorageT, num_rows: int, own: OwnPart) -> None:
        """Record the newest rows of the storage; `own` is the second value of `split`."""

    def count(self, storage: StorageT) -> int:
        """Return how many data there are."""
        return storage.count

    def expire(self, train_iter: int) -> None:
        """Remove data that are too old at this learner iteration."""

    @abstractmethod
    def draw(
        self, storage: StorageT, size: int, *, train_iter: int, ages: slice | None, replace: bool, rng: Generator
    ) -> Array | int:
        """Return places int64 [size], or, where they are too few, how many there are to draw from.

        `ages` restricts the draw (0 is the oldest). Without `replace` none comes twice, except by priority.
        """

    @abstractmethod
    def gather(self, storage: StorageT, places: Array, train_iter: int) -> Rows:
        """Return the data at places that were drawn, in fresh memory, and count them as sampled."""

    def update(self, storage: StorageT | None, info: Report) -> bool:
        """Use the learner's report on its data; return False if no draw depends on it."""
        return False

    def clear(self) -> None:
        """Clear all places."""

    def dump(self, storage: StorageT, data: Dump) -> Dump:
        """Return the storage's dump with the sampler's part of a data file."""
        return data

    def split_dump(self, data: Dump) -> tuple[Dump, OwnPart]:
        """Return (the storage's part of what `dump` returned, the sampler's part or None)."""
        return data, None

    def restore(self, storage: StorageT, own: OwnPart) -> None:
        """Restore the sampler's part of a dump, whose rows are the newest of the storage."""

    def state_dict(self, storage: StorageT | None) -> State:
        """Return the state that a later draw depends on, beside the dump."""
        return {}

    def load_state_dict(self, storage: StorageT | None, state: State) -> None:
        """Restore what `state_dict` returned; the data are already back at their places."""


class UniformSampler(Sampler[RingStorage]):
    """Sampler that draws each place as likely as any other."""

    def draw(
        self, storage: RingStorage, size: int, *, train_iter: int, ages: slice | None, replace: bool, rng: Generator
    ) -> Array | int:
        if size == 0:
            return _NOWHERE
        drawn = range(storage.count)
        if ages is not None:
            drawn = drawn[ages]
        num_ages = len(drawn)
        if not num_ages or (size > num_ages and not replace):
            return num_ages
        return storage.rows(draw_uniform(rng, drawn, size, replace=replace))

    def gather(self, storage: RingStorage, places: Array, train_iter: int) -> Rows:
        return storage.gather(places)


def draw_uniform(rng: Generator, ages: range, size: int, *, replace: bool) -> Array:
    """Return `size` of `ages`, each as likely as any other and, without `replace`, none twice; int64[size]."""
    num_ages = len(ages)
    if replace:
        # Half the time of `integers`; the 53 bits of a double favour none of 1e9 rows by more than 1e-7.
        draws = rng.random(size)
        draws *= num_ages
        picks = draws.astype(np.int64)
    elif size * size > num_ages:
        picks = rng.choice(num_ages, size, replace=False)
    else:
        picks = _draw_distinct(rng, num_ages, size)
    is_whole = ages.start == 0 and ages.step == 1
    return picks if is_whole else ages.start + picks * ages.step


def _draw_distinct(rng: Generator, num_ages: int, size: int) -> Array:
    """Draw one after another and pass over what was drawn before: even, as it treats all rows alike."""
    draws = rng.random(size + _SPARE)
    picks = first_distinct(draws, num_ages, size)
    while len(picks) < size:  # seldom, as rows are many
        draws = np.concatenate([draws, rng.random(size)])
        picks = first_distinct(draws, num_ages, size)
    return picks


_REPORT_STRAYS_S = 60.0

# The buffer's own columns of a sample; those of a pushed row are not stored.
_OWN_COLUMNS = frozenset(("priority", "weight", "IS", "staleness", "use", "replay_unique_id", "replay_buffer_idx"))

# (priorities [B], None or NaN: the largest; learner iterations [B], None: unknown).
_Own = tuple[Array | None, Array | None]


class ByPriority(Sampler[StorageT]):
    """Sampler by priority; samples have a `weight`, and the place and id that an update refers to.

    `cfg` is a full config of `AdvancedReplayBuffer`.
    """

    def __init__(self, capacity: int, cfg: Config) -> None:
        self.priorities = Priorities(capacity, cfg)
        self._next_id = 0  # never falls, so that an id means one row for ever
        self._strays = Interval(_REPORT_STRAYS_S, starts_due=True)

    def split(self, data: Pushed) -> tuple[Pushed, _Own]:
        """Return rows without the buffer's own columns, and their priorities and learner iterations.

        Items of a list that are not mappings are left out, with a warning. Raises SchemaError if none is a mapping.
        """
        if isinstance(data, TransitionBatch):
            rows = data
            if not _OWN_COLUMNS.isdisjoint(data.columns):
                rows = data.select(name for name in data.columns if name not in _OWN_COLUMNS)
            return rows, (given_priorities(data), collect_iters_of(data))
        items = list(data) if isinstance(data, (list, tuple)) else [data]
        kept = [item for item in items if isinstance(item, Mapping)]
        if len(kept) < len(items):
            stray = next(item for item in items if not isinstance(item, Mapping))
            if not kept:
                raise SchemaError(
                    f"a prioritised buffer keeps mappings, got a {type(stray).__name__}. Push dicts, or use "
                    "type='naive'."
                )
            if self._strays.pass_s():
                text = "a prioritised buffer keeps dicts: %d of %d pushed items are none (%r, say) and were left out."
                logger.warning(text, len(items) - len(kept), len(items), stray)
        plain = [{key: value for key, value in row.items() if key not in _OWN_COLUMNS} for row in kept]
        return plain, (given_priorities(kept), collect_iters_of(kept))

    def count(self, storage: StorageT) -> int:
        return self.priorities.num_live

    def expire(self, train_iter: int) -> None:
        self.priorities.expire(train_iter)

    def draw(
        self, storage: StorageT, size: int, *, train_iter: int, ages: slice | None, replace: bool, rng: Generator
    ) -> Array | int:
        if size:
            self.expire(train_iter)
        return self.priorities.draw(size, rng, None if ages is None else storage.places_of_ages(ages))

    def update(self, storage: StorageT | None, info: Report) -> bool:
        given = info.get(ROW_ID)
        numbers = as_numbers(given, self.buffer_name)
        info = info if numbers is given else {**info, ROW_ID: numbers}
        places, ids, priorities = checked_update(info, 0 if storage is None else storage.capacity)
        if storage is not None and len(places):
            still = (self._ids_at(storage, places) == ids) & self.priorities.is_live(places)
            self.priorities.update(places[still], priorities[still])
        return True

    @abstractmethod
    def _ids_at(self, storage: StorageT, places: Array) -> Array:
        """Return the ids of the data at places [B]."""

    def clear(self) -> None:
        self.priorities.clear()

    def state_dict(self, storage: StorageT | None) -> State:
        now = self.priorities
        return {"next_id": self._next_id, "max_priority": now.max_priority, "beta": now.beta}

    def load_state_dict(self, storage: StorageT | None, state: State) -> None:
        self._next_id, self.priorities.beta = state["next_id"], state["beta"]
        if storage is not None:
            self.clear()
            self._load_places(storage, state)
        self.priorities.max_priority = state["max_priority"]

    @abstractmethod
    def _load_places(self, storage: StorageT, state: State) -> None:
        """Restore what a state says of the data, which are back in a storage."""


class PrioritisedSampler(ByPriority[RingStorage]):
    """Sampler that draws rows by priority."""

    def added(self, storage: RingStorage, num_rows: int, own: _Own) -> None:
        given, since = own
        self._next_id += num_rows
        if given is None:
            for places, part in storage.newest(num_rows):
                self.priorities.write_new(places, None if since is None else since[part])
            return
        given = self.priorities.filled(given)
        self.priorities.raise_largest(given)
        self._write(storage, given, np.full(num_rows, NO_ITER) if since is None else since, np.zeros(num_rows, int))

    def _write(self, storage: RingStorage, priorities: Array, since: Array, use: Array) -> None:
        """Store the columns of the newest rows of the storage, oldest first."""
        for places, part in storage.newest(len(priorities)):
            self.priorities.write(places, priorities[part], since[part], use[part])

    def gather(self, storage: RingStorage, places: Array, train_iter: int) -> Rows:
        """Return rows with `replay_unique_id`, `replay_buffer_idx`, `priority`, `weight` (DI-engine's `IS`), and more.

        Of objects, the rows are dicts. `use` counts this time too, `staleness` is -1 if it is not known.
        """
        own = self.priorities.describe(places, train_iter, next_id=self._next_id, next_row=storage.next_row)
        data = _join(storage.gather(places), own, self.buffer_name)
        self.averages = self.priorities.count_sample(places, own)
        return data

    def update(self, storage: RingStorage | None, info: Report) -> bool:
        where: dict[str, int] = {"next_id": self._next_id, "next_row": 0 if storage is None else storage.next_row}
        if storage is not None and self.priorities.update_current(info, **where):
            return True
        return super().update(storage, info)

    def _ids_at(self, storage: RingStorage, places: Array) -> Array:
        return ids_of(places, storage.capacity, next_id=self._next_id, next_row=storage.next_row)

    def dump(self, storage: RingStorage, data: Dump) -> Dump:
        priorities = self.priorities.priority[storage.all_places()]
        if isinstance(data, dict):
            return {**data, "priority": priorities}
        rows: list[Any] = _join(data, {"priority": priorities}, self.buffer_name)
        return rows

    def split_dump(self, data: Dump) -> tuple[Dump, OwnPart]:
        if isinstance(data, dict):
            return {name: column for name, column in data.items() if name != "priority"}, data.get("priority")
        given = [np.nan if row.get("priority") is None else row["priority"] for row in data]
        return [{name: value for name, value in row.items() if name != "priority"} for row in data], given or None

    def restore(self, storage: RingStorage, own: OwnPart) -> None:
        """Give the newest rows the priorities that they were saved with: 0 if they had left, NaN for none."""
        given, now = np.asarray(own, np.float32), self.priorities
        for places, part in storage.newest(len(given)):
            exact = np.where(np.isnan(given[part]), now.priority[places], given[part])
            now.write(places, exact, now.collect_iter[places].copy(), now.use[places].copy())
        now.raise_largest(now.priority)

    def state_dict(self, storage: RingStorage | None) -> State:
        rows = _NOWHERE if storage is None else storage.all_places()
        return {
            **super().state_dict(storage),
            "use": self.priorities.use[rows],
            "collect_iter": self.priorities.collect_iter[rows],
            "first_place": 0 if storage is None else (storage.next_row - storage.count) % storage.capacity,
        }

    def _load_places(self, storage: RingStorage, state: State) -> None:
        _, given = self.split_dump(state["data"])
        self._write(storage, np.asarray(given, np.float32), state["collect_iter"], state["use"])


def _join(data: Rows, own: dict[str, Array], buffer_name: str) -> Any:
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


@dataclass(frozen=True)
class WindowShape:
    """Shape of windows: `config` of the sequence buffer explains the settings."""

    num_steps: int
    padding: bool = False
    burn_in: int = 0
    initial_columns: tuple[str, ...] = ()

    def begins(self, storage: StreamStorage, places: Array) -> Array:
        """Return which places [B] begin a window."""
        return np.ones(len(places), bool) if self.padding else storage.begins_window(places, self.num_steps)

    def gather(
        self, storage: StreamStorage, first: Array, per_window: Mapping[str, Array] | None = None
    ) -> SequenceBatch:
        """Return the windows that begin at places [B], in fresh memory, with columns [B, ...] of one value a window."""
        places = storage.windows(first, self.num_steps)
        columns = storage.gather(places)
        initial = {name: columns.pop(name)[:, 0].copy() for name in self.initial_columns}
        mask = np.ones(places.shape, bool)
        if self.padding:
            mask = storage.are_in_run(places)
            for column in columns.values():
                column[~mask] = 0
        if self.burn_in:
            mask[:, : self.burn_in] = False
        columns["mask"] = mask
        return SequenceBatch.of_length(self.num_steps, columns, initial, per_window)


class WindowSampler(Sampler[StreamStorage]):
    """Sampler that draws each window as likely as any other."""

    unit: SampleUnit = "window"

    def __init__(self, shape: WindowShape) -> None:
        self.shape = shape

    def draw(
        self, storage: StreamStorage, size: int, *, train_iter: int, ages: slice | None, replace: bool, rng: Generator
    ) -> Array | int:
        """Return the places of the first rows of windows."""
        if ages is None and storage.count >= 8 * size:
            found = self._draw_by_trial(storage, size, rng, replace=replace)
            if found is not None:
                return found
        places = storage.all_places() if ages is None else storage.places_of_ages(ages)
        places = places[self.shape.begins(storage, places)]
        if len(places) < (1 if replace else size):
            return len(places)
        return rng.choice(places, size, replace=replace)

    def _draw_by_trial(self, storage: StreamStorage, size: int, rng: Generator, *, replace: bool) -> Array | None:
        """Draw rows until enough of them begin a window: even, and needs no list of all windows."""
        rows = range(storage.count)
        found: Array | None = None
        num_trials, left = 2 * size, len(rows)
        while left > 0:  # beyond it, listing all windows costs less
            places = storage.places_of(draw_uniform(rng, rows, num_trials, replace=True))
            if not self.shape.padding:
                places = places[self.shape.begins(storage, places)]
            found = places if found is None else np.concatenate([found, places])
            if not replace:
                found = _distinct(found)
            if len(found) >= size:
                return found[:size]
            num_trials, left = 2 * num_trials, left - num_trials
        return None

    def gather(self, storage: StreamStorage, places: Array, train_iter: int) -> SequenceBatch:
        return self.shape.gather(storage, places)


class PrioritisedWindowSampler(ByPriority[StreamStorage]):
    """Sampler that draws windows by priority, each known by its first row, once their last row is pushed.

    A new window gets the largest priority so far, or the `priority` that its first row was pushed with. Its age is that
    of its first row.
    """

    unit: SampleUnit = "window"

    def __init__(self, capacity: int, cfg: Config, shape: WindowShape) -> None:
        super().__init__(capacity, cfg)
        self.shape = shape
        self._ids = np.full(capacity, -1, np.int64)
        # Of each row, until it begins a window: the priority that it was pushed with (NaN: none), and when it was made.
        self._given = np.full(capacity, np.nan, np.float32)
        self._since = np.full(capacity, NO_ITER, np.int64)

    def added(self, storage: StreamStorage, num_rows: int, own: OwnPart) -> None:
        given, since = own
        if storage.moved is not None:
            self._move(*storage.moved)
        places, which = storage.written
        self._ids[places] = self._next_id + which
        self._next_id += num_rows
        self._given[places] = np.nan if given is None else given[which]
        self._since[places] = NO_ITER if since is None else since[which]
        nothing = np.zeros(len(places))
        self.priorities.write(places, nothing.astype(np.float32), self._since[places], nothing.astype(np.int64))
        added = np.bincount(places // storage.ring_size, minlength=storage.num_streams)
        # Older rows may begin windows by now that these rows have made whole; those of before were whole already.
        waiting = 0 if self.shape.padding else self.shape.num_steps - 1
        self._begin_windows(storage, storage.newest(added + waiting * (added > 0)))

    def _begin_windows(self, storage: StreamStorage, places: Array) -> None:
        places = places[self.shape.begins(storage, places)]
        if not len(places):
            return
        priorities = self.priorities.filled(self._given[places])
        self.priorities.write(places, priorities, self._since[places], np.zeros(len(places), np.int64))
        self.priorities.raise_largest(priorities)

    def _move(self, old: Array, new: Array) -> None:
        """Follow rows to their new places."""
        kept = [column[old] for column in self._columns()]
        largest = self.priorities.max_priority
        self.clear()
        self._set_columns(new, kept)
        self.priorities.max_priority = largest

    def gather(self, storage: StreamStorage, places: Array, train_iter: int) -> SequenceBatch:
        """Return windows whose `per_window` has what prioritised rows have as columns: [B] each."""
        own = self.priorities.describe(places, train_iter, next_id=0, next_row=0)
        own["replay_unique_id"] = self._ids[places]  # rows of several rings are not numbered in their order
        data = self.shape.gather(storage, places, own)
        self.averages = self.priorities.count_sample(places, own)
        return data

    def _ids_at(self, storage: StreamStorage, places: Array) -> Array:
        return self._ids[places]

    def clear(self) -> None:
        super().clear()
        self._ids.fill(-1)
        self._given.fill(np.nan)
        self._since.fill(NO_ITER)

    def state_dict(self, storage: StreamStorage | None) -> State:
        places = _NOWHERE if storage is None else storage.all_places()
        return {**super().state_dict(storage), "windows": [column[places] for column in self._columns()]}

    def _load_places(self, storage: StreamStorage, state: State) -> None:
        stays = storage.found_room(storage.streams_of(state["data"]))
        self._set_columns(storage.all_places(), [column[stays] for column in state["windows"]])

    def _columns(self) -> tuple[Array, ...]:
        """Return the columns of all places."""
        now = self.priorities
        return now.priority, now.collect_iter, now.use, self._ids, self._given, self._since

    def _set_columns(self, places: Array, columns: Sequence[Array]) -> None:
        priority, collect_iter, use, self._ids[places], self._given[places], self._since[places] = columns
        self.priorities.write(places, priority, collect_iter, use)


def _distinct(places: Array) -> Array:
    """Return places [B] in their order, each once."""
    ordered = np.sort(places)
    if not np.count_nonzero(ordered[1:] == ordered[:-1]):
        return places
    _, first = np.unique(places, return_index=True)
    return places[np.sort(first)]
