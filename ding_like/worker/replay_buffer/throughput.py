"""Count what goes in and out of a buffer, on its own calls: no thread, no polling."""

from __future__ import annotations

import time
from collections.abc import Callable

from ding_like.utils.interval import Interval


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
