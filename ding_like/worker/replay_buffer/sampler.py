"""Choose what a buffer hands out: how that is drawn, and what it looks like."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic

import numpy as np

from ding_like.data.compiled import first_distinct
from ding_like.types import Array, SampleUnit, State
from ding_like.worker.replay_buffer.storage import RingStorage
from ding_like.worker.replay_buffer.store import Dump, StorageT

_SPARE = 8  # draws beyond a sample's size: less than one is drawn twice where samples are small beside the buffer
_NOWHERE = np.arange(0)


class Sampler(ABC, Generic[StorageT]):
    """Draw places of a storage and make a sample of them; what it keeps of each place follows the storage's pushes.

    `unit` is what one item of a sample is. The buffer holds its lock around every call.
    """

    unit: SampleUnit = "row"
    buffer_name = "buffer"  # which ids of rows begin with, where they are text
    # What to log of the last samples, when that is due.
    averages: Mapping[str, float] | None = None

    def prepare(self, data: Any) -> tuple[Any, Any]:
        """Return pushed data as the store is to see them, before they are stacked, and what `split` is to know."""
        return data, None

    def split(self, rows: Sequence[Any], known: Any = None) -> tuple[Sequence[Any], Any]:
        """Return (what the storage keeps of pushed rows, what `added` needs); `known` is what `prepare` returned.

        Raises SchemaError for what is wrong.
        """
        return rows, None

    def added(self, storage: StorageT, num_rows: int, own: Any) -> None:
        """Take note of the newest rows of the storage; `own` is what `split` returned of them."""

    def count(self, storage: StorageT) -> int:
        """Return how many data there are."""
        return storage.count

    def expire(self, train_iter: int) -> None:
        """Let go what is too old at this learner iteration."""

    @abstractmethod
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
        """Return places int64 [size], or, where they are too few, how many there are to draw from.

        `ages` restricts the draw (0 is the oldest). Without `replace` none comes twice, but where it has a priority.
        """

    @abstractmethod
    def gather(self, storage: StorageT, places: Array, train_iter: int) -> Sequence[Any]:
        """Return what lies at places that were drawn, in fresh memory, and count it as sampled."""

    def update(self, storage: StorageT | None, info: Mapping[str, Any]) -> bool:
        """Take what the learner says of data it was given; return False if that matters to no draw."""
        return False

    def clear(self) -> None:
        """Forget all places."""

    def dump(self, storage: StorageT, data: Dump) -> Dump:
        """Return the storage's dump with what a file of the data is to hold besides."""
        return data

    def split_dump(self, data: Dump) -> tuple[Dump, Any]:
        """Return (the storage's part of what `dump` returned, what it had besides, None for nothing)."""
        return data, None

    def restore(self, storage: StorageT, own: Any) -> None:
        """Take over what `split_dump` found besides; the newest rows of the storage are those of the dump."""

    def state_dict(self, storage: StorageT | None) -> State:
        """Return all that a later draw depends on, beside the dump."""
        return {}

    def load_state_dict(self, storage: StorageT | None, state: State) -> None:
        """Take over what `state_dict` returned; the data are back at their places by then."""


class UniformSampler(Sampler[RingStorage]):
    """Draw each row, or whatever else lies at a place, as likely as any other."""

    def draw(
        self,
        storage: RingStorage,
        size: int,
        *,
        train_iter: int,
        ages: slice | None,
        replace: bool,
        rng: np.random.Generator,
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

    def gather(self, storage: RingStorage, places: Array, train_iter: int) -> Sequence[Any]:
        return storage.gather(places)


def draw_uniform(rng: np.random.Generator, ages: range, size: int, *, replace: bool) -> Array:
    """Return `size` of `ages`, each as likely as any other and, without `replace`, none twice; int64[size]."""
    num_ages = len(ages)
    if replace:
        picks = _draw(rng, num_ages, size)
    elif size * size > num_ages:
        picks = rng.choice(num_ages, size, replace=False)
    else:
        picks = _draw_distinct(rng, num_ages, size)
    is_whole = ages.start == 0 and ages.step == 1
    return picks if is_whole else ages.start + picks * ages.step


def _draw(rng: np.random.Generator, num_ages: int, size: int) -> Array:
    # Half the time of `integers`; the 53 bits of a double favour none of 1e9 rows by more than 1e-7.
    places = rng.random(size)
    places *= num_ages
    return places.astype(np.int64)


def _draw_distinct(rng: np.random.Generator, num_ages: int, size: int) -> Array:
    """Draw one after another and pass over what was drawn before: even, as it treats all rows alike."""
    draws = rng.random(size + _SPARE)
    picks = first_distinct(draws, num_ages, size)
    while len(picks) < size:  # seldom, as rows are many
        draws = np.concatenate([draws, rng.random(size)])
        picks = first_distinct(draws, num_ages, size)
    return picks
