"""Count, mean and variance of data of which several processes observed a part each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from ding_like.types import Array

_MOST_ROWS, _MOST_BYTES = 256, 1 << 20  # that wait to be summed up


class Moments(NamedTuple):
    """Moments of numbers [N, ...]: how many rows, their mean and their summed squared deviations from it.

    Merging is exact but for rounding, in float64 and in any order: parts give what all the data together give.
    Source: Chan, Golub and LeVeque 1979, "Updating formulae and a pairwise algorithm for computing sample variances".
    """

    count: float  # type: ignore[assignment]  # tuples have a method of that name, which is not needed here
    mean: Array  # [...], float64
    m2: Array  # [...], float64: the sum of squared deviations

    @staticmethod
    def empty(shape: tuple[int, ...]) -> Moments:
        """Return the moments of no data."""
        return Moments(0, np.zeros(shape), np.zeros(shape))

    @staticmethod
    def of(values: Array) -> Moments:
        """Return the moments of `values` [N, ...], of any dtype of numbers."""
        if not len(values):
            return Moments.empty(values.shape[1:])
        numbers = np.asarray(values, np.float64)
        mean = numbers.mean(axis=0)
        return Moments(len(numbers), np.asarray(mean), np.asarray(np.square(numbers - mean).sum(axis=0)))

    def merge(self, other: Moments) -> Moments:
        """Return the moments of the data of both."""
        if not other.count:
            return self
        if not self.count:
            return other
        count = self.count + other.count
        delta = other.mean - self.mean
        mean = self.mean + delta * (other.count / count)
        m2 = self.m2 + other.m2 + np.square(delta) * (self.count * (other.count / count))
        return Moments(count, np.asarray(mean), np.asarray(m2))

    @property
    def var(self) -> Array:
        """Variance [...], 1 without data."""
        return self.m2 / self.count if self.count else np.ones_like(self.m2)


def merged(parts: Sequence[Moments]) -> Moments:
    """Return the moments of the data of all `parts`, of which there is at least one."""
    return reduce(Moments.merge, parts)


class Observer:
    """Moments of rows that are added one at a time; they are summed up many at once."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        row_bytes = 8 * math.prod(shape)
        self._rows = np.empty((max(1, min(_MOST_ROWS, _MOST_BYTES // max(row_bytes, 1))), *shape))
        self._used = 0
        self._moments = Moments.empty(shape)

    def add(self, row: Array) -> None:
        """Add one row."""
        if self._used == len(self._rows):
            self._sum_up()
        self._rows[self._used] = row
        self._used += 1

    @property
    def moments(self) -> Moments:
        """Moments of all rows since the start, or the last `restart`."""
        self._sum_up()
        return self._moments

    def restart(self, moments: Moments | None = None) -> None:
        """Forget the rows so far; continue from `moments` if given."""
        self._used = 0
        self._moments = Moments.empty(self._rows.shape[1:]) if moments is None else moments

    def _sum_up(self) -> None:
        self._moments = self._moments.merge(Moments.of(self._rows[: self._used]))
        self._used = 0
