"""Small tools that tests of all rooms share: a clock that is set by hand, and a wait on a condition."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

# A deadline that a loaded machine keeps too: a test that passes never waits for it.
DEADLINE_S = 60.0


class Clock:
    """Clock that stands at `now` until the test sets or advances it."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return the time that was set, in seconds."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        self.now += seconds


def wait_until(condition: Callable[[], object], what: str = "the condition", timeout_s: float = DEADLINE_S) -> None:
    """Return once `condition` holds; fail the test after `timeout_s`."""
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s, f"{what} did not come within {timeout_s:g} s"
        threading.Event().wait(0.01)
