"""Call something now and then while work that says nothing of itself goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

# A call that took t seconds is followed by none for this many times t.
_REST = 100.0
_LEAVE_S = 5.0  # for a call that hangs, on a terminal that was stopped say: the work does not wait for it


class Ticker:
    """Call `tick` every `every_s` seconds, in a thread of its own, until the block ends or a call raises OSError."""

    def __init__(self, tick: Callable[[], None], *, every_s: float) -> None:
        self._tick = tick
        self._every_s = every_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ticker", daemon=True)

    def __enter__(self) -> Ticker:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(_LEAVE_S)

    def _run(self) -> None:
        wait_s = self._every_s
        while not self._ended.wait(wait_s):
            started = time.monotonic()
            try:
                self._tick()
            except OSError:  # the terminal has gone away: whoever draws next finds out
                return
            wait_s = max(self._every_s, _REST * (time.monotonic() - started))
