"""Count what goes in and out of a buffer, on its own calls: no thread, no polling."""

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
        """Return the seconds since the last yes if they are enough, and begin anew; else return 0."""
        now = self._clock()
        passed = now - self._since
        if passed < self._seconds:
            return 0.0
        self._since = now
        return passed


class ThroughputMeter:
    """Add up rows over windows of at least `seconds`."""

    def __init__(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = Interval(seconds, clock=clock)
        self._pushed_in = self._sampled_out = self._removed = 0

    def add(self, *, pushed_in: int = 0, sampled_out: int = 0, removed: int = 0) -> dict[str, float] | None:
        """Count rows, and return the window's sums and its length once it is over."""
        self._pushed_in += pushed_in
        self._sampled_out += sampled_out
        self._removed += removed
        passed_s = self._interval.pass_s()
        if not passed_s:
            return None
        sums = {
            "pushed_in": self._pushed_in,
            "sampled_out": self._sampled_out,
            "removed": self._removed,
            "window_s": passed_s,
        }
        self._pushed_in = self._sampled_out = self._removed = 0
        return sums
