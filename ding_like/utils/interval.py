"""Limit how often something is done: at most once in so many seconds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable


class Interval:
    """Say yes at most once in `seconds`; the first time at once if `starts_due`, else after the first `seconds`."""

    def __init__(
        self, seconds: float, *, starts_due: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._since = clock() - (seconds if starts_due else 0)

    def pass_s(self) -> float:
        """Return the seconds since the last yes if they are enough, and start over; else return 0."""
        now = self._clock()
        passed = now - self._since
        if passed < self._seconds:
            return 0.0
        self._since = now
        return passed


class Beat:
    """Limit of something to `frequency` times a second; beats that were missed are not made up later."""

    def __init__(self, frequency: float, clock: Callable[[], float]) -> None:
        self._period_s = 1 / frequency if frequency > 0 else 0.0
        self._clock = clock
        self._next_s = -math.inf

    @property
    def is_due(self) -> bool:
        """Whether the next beat is due."""
        return not self._period_s or self._clock() >= self._next_s

    @property
    def wait_s(self) -> float:
        """Return the seconds until the next beat is due."""
        return max(0.0, self._next_s - self._clock()) if self._period_s else 0.0

    def note(self) -> None:
        """Count the next beat from where this one was due, if it was done in time."""
        if self._period_s:
            now = self._clock()
            self._next_s = (self._next_s if now - self._next_s < self._period_s else now) + self._period_s
