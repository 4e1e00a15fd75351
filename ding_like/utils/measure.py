"""Limits of how often something is done, and measurements of how long it takes."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np

from ding_like.types import Array

_MAX_DURATIONS = 10_000  # that a meter keeps, the newest


class Interval:
    """Limit of once in `seconds`; the first time is due at once with `starts_due`, else after the first `seconds`."""

    def __init__(
        self, seconds: float, *, starts_due: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._since = clock() - (seconds if starts_due else 0)

    def pass_s(self) -> float:
        """Return the seconds since the last due time and start over if they are enough; else return 0."""
        now = self._clock()
        passed = now - self._since
        if passed < self._seconds:
            return 0.0
        self._since = now
        return passed


class RateLimiter:
    """Limit of an action to `frequency` times a second; missed times are not made up later."""

    def __init__(self, frequency: float, clock: Callable[[], float]) -> None:
        self._period_s = 1 / frequency if frequency > 0 else 0.0
        self._clock = clock
        self._next_s = -math.inf

    @property
    def is_due(self) -> bool:
        """Whether the next time is due."""
        return self.wait_s == 0.0

    @property
    def wait_s(self) -> float:
        """Seconds until the next time is due."""
        return max(0.0, self._next_s - self._clock())

    def record(self) -> None:
        """Record an action; the next is due one period after this one was, if this one was in time."""
        if self._period_s:
            now = self._clock()
            self._next_s = (self._next_s if now - self._next_s < self._period_s else now) + self._period_s


@dataclass(frozen=True)
class Latency:
    """Percentiles of how long `count` answers took, in ms; NaN if there were none."""

    count: int
    p50_ms: float
    p99_ms: float

    @classmethod
    def of(cls, durations_s: Sequence[float]) -> Latency:
        """Return the percentiles of durations in seconds."""
        if not len(durations_s):
            return cls(0, math.nan, math.nan)
        p50, p99 = 1000.0 * np.percentile(np.asarray(durations_s), (50, 99))
        return cls(len(durations_s), float(p50), float(p99))

    def plain(self) -> dict[str, float | None]:
        """Return plain JSON: null stands for NaN."""
        return {name: value if value == value else None for name, value in asdict(self).items()}


class LatencyMeter:
    """Durations since they were last read."""

    def __init__(self) -> None:
        self._durations_s: deque[float] = deque(maxlen=_MAX_DURATIONS)

    def record(self, duration_s: float) -> None:
        """Add the duration of one answer."""
        self._durations_s.append(duration_s)

    def take(self) -> Latency:
        """Return the percentiles since the last call."""
        found = Latency.of(list(self._durations_s))
        self._durations_s.clear()
        return found


class EasyTimer:
    """Timer of a `with` block: `value` is its duration in seconds, once it has ended.

    With `cuda` it waits for what the block started on the GPU, at both ends.
    """

    def __init__(self, cuda: bool = False) -> None:
        self.value = 0.0
        self._cuda = cuda

    def __enter__(self) -> EasyTimer:
        self._started_s = self._now_s()
        return self

    def __exit__(self, *_: object) -> None:
        self.value = self._now_s() - self._started_s

    def _now_s(self) -> float:
        if self._cuda:
            import torch

            if torch.cuda.is_available():
                torch.cuda.synchronize()
        return time.perf_counter()


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
