"""Limit how often something is done: at most once in so many seconds."""

from __future__ import annotations

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
