"""Draw windows: rows that follow each other in one stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ding_like.data.sequence_batch import SequenceBatch
from ding_like.types import Array, SampleUnit, State
from ding_like.worker.replay_buffer.priorities import PrioritySettings, checked_update
from ding_like.worker.replay_buffer.prioritised import ByPriority, stored_part
from ding_like.worker.replay_buffer.row_records import (
    NO_ITER,
    collect_iters_of,
    priorities_of,
    priorities_of_rows,
)
from ding_like.worker.replay_buffer.sampler import Sampler, draw_uniform
from ding_like.worker.replay_buffer.streams import StreamStorage


@dataclass(frozen=True)
class WindowShape:
    """Say what windows look like: `config` of the sequence buffer explains the settings."""

    num_steps: int
    padding: bool = False
    burn_in: int = 0
    initial_columns: tuple[str, ...] = ()

    def begins(self, storage: StreamStorage, places: Array) -> Array:
        """Tell which places [B] begin a window."""
        return np.ones(len(places), bool) if self.padding else storage.begins_window(places, self.num_steps)

    def gather(
        self, storage: StreamStorage, first: Array, per_window: Mapping[str, Array] | None = None
    ) -> SequenceBatch:
        """Return the windows that begin at places [B], in fresh memory, with columns [B, ...] that say more of each."""
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
    """Draw each window as likely as any other."""

    unit: SampleUnit = "window"

    def __init__(self, shape: WindowShape) -> None:
        self.shape = shape

    def draw(
        self,
        storage: StreamStorage,
        size: int,
        *,
        train_iter: int,
        ages: slice | None,
        replace: bool,
        rng: np.random.Generator,
    ) -> Array | int:
        """Return the places of the first rows of windows."""
        if ages is None and storage.count >= 8 * size:
            found = self._draw_by_trial(storage, size, rng, replace=replace)
            if found is not None:
                return found
        places = storage.all_places() if ages is None else places_of_ages(storage, ages)
        places = places[self.shape.begins(storage, places)]
        if len(places) < (1 if replace else size):
            return len(places)
        return rng.choice(places, size, replace=replace)

    def _draw_by_trial(
        self, storage: StreamStorage, size: int, rng: np.random.Generator, *, replace: bool
    ) -> Array | None:
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
    """Draw windows by priority, each known by its first row; windows come to be when their last row is pushed.

    A new window gets the largest priority so far, or the `priority` that its first row was pushed with. Its age is that
    of its first row.
    """

    unit: SampleUnit = "window"

    def __init__(self, capacity: int, settings: PrioritySettings, shape: WindowShape) -> None:
        super().__init__(capacity, settings)
        self.shape = shape
        self._ids = np.full(capacity, -1, np.int64)
        # Of each row, until it begins a window: the priority that it was pushed with (NaN: none), and when it was made.
        self._given = np.full(capacity, np.nan, np.float32)
        self._since = np.full(capacity, NO_ITER, np.int64)

    def split(self, rows: Sequence[Any], known: Any = None) -> tuple[Sequence[Any], Any]:
        given = priorities_of(rows, np.nan) if known is None else priorities_of_rows(known, np.nan)
        return stored_part(rows), (given, collect_iters_of(rows))

    def added(self, storage: StreamStorage, num_rows: int, own: Any) -> None:
        given, since = own
        if storage.moved is not None:
            self._move(*storage.moved)
        places, which = storage.written
        self._ids[places] = self._next_id + which
        self._next_id += num_rows
        self._given[places] = given[which]
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
        given = self._given[places]
        largest = np.fmax(given.max(initial=0.0, where=~np.isnan(given)), np.float32(self.priorities.max_priority))
        priorities = np.where(np.isnan(given), largest, given)
        self.priorities.write(places, priorities, self._since[places], np.zeros(len(places), np.int64))
        self.priorities.raise_largest(priorities)

    def _move(self, old: Array, new: Array) -> None:
        """Follow rows to their new places."""
        kept = [column[old] for column in self._columns()]
        largest = self.priorities.max_priority
        self.clear()
        self._set_columns(new, kept)
        self.priorities.max_priority = largest

    def _of_ages(self, storage: StreamStorage, ages: slice) -> Array:
        return places_of_ages(storage, ages)

    def gather(self, storage: StreamStorage, places: Array, train_iter: int) -> SequenceBatch:
        """Return windows whose `per_window` has what prioritised rows have as columns: [B] each."""
        own = self.priorities.describe(places, train_iter, next_id=0, next_row=0)
        own["replay_unique_id"] = self._ids[places]  # rows of several rings are not numbered in their order
        data = self.shape.gather(storage, places, own)
        self.averages = self.priorities.count_sample(places, own)
        return data

    def update(self, storage: StreamStorage | None, info: Mapping[str, Any]) -> bool:
        places, ids, priorities = checked_update(self._with_numbers(info), 0 if storage is None else storage.capacity)
        still = (self._ids[places] == ids) & self.priorities.records.is_live(places)
        self.priorities.update(places[still], priorities[still])
        return True

    def clear(self) -> None:
        self.priorities.clear()
        self._ids.fill(-1)
        self._given.fill(np.nan)
        self._since.fill(NO_ITER)

    def state_dict(self, storage: StreamStorage | None) -> State:
        places = np.arange(0) if storage is None else storage.all_places()
        return {
            "windows": [column[places] for column in self._columns()],
            "next_id": self._next_id,
            "max_priority": self.priorities.max_priority,
            "beta": self.priorities.beta,
        }

    def load_state_dict(self, storage: StreamStorage | None, state: State) -> None:
        self._next_id, self.priorities.beta = state["next_id"], state["beta"]
        if storage is not None:
            self.clear()
            stays = storage.found_room(storage.streams_of(state["data"]))
            self._set_columns(storage.all_places(), [column[stays] for column in state["windows"]])
        self.priorities.max_priority = state["max_priority"]

    def _columns(self) -> tuple[Array, ...]:
        """Return what is kept of each place."""
        records = self.priorities.records
        return records.priority, records.collect_iter, records.use, self._ids, self._given, self._since

    def _set_columns(self, places: Array, columns: Sequence[Array]) -> None:
        priority, collect_iter, use, self._ids[places], self._given[places], self._since[places] = columns
        self.priorities.write(places, priority, collect_iter, use)


def places_of_ages(storage: StreamStorage, ages: slice) -> Array:
    """Return the places of the rows of these ages in their streams."""
    start, stop, step = ages.indices(int(storage.counts.max(initial=0)))
    age = storage.ages()
    return storage.all_places()[(age >= start) & (age < stop) & ((age - start) % step == 0)]


def _distinct(places: Array) -> Array:
    """Return places [B] in their order, each once."""
    ordered = np.sort(places)
    if not np.count_nonzero(ordered[1:] == ordered[:-1]):
        return places
    _, first = np.unique(places, return_index=True)
    return places[np.sort(first)]
