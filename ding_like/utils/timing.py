"""Limits of how often something is done, and measurements of how long it takes."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from types import TracebackType

import numpy as np

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.value = self._now_s() - self._started_s

    def _now_s(self) -> float:
        if self._cuda:
            import torch

            if torch.cuda.is_available():
                torch.cuda.synchronize()
        return time.perf_counter()
