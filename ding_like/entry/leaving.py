"""Let a worker leave when it is asked to, and see that it has left in time."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

logger = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_SOON = 0.6  # of the grace, for the task; the rest is for closing
_FORCED = 128  # plus the signal's number: what a process that was ended returns


class Leaving:
    """Call `stop` at the first SIGTERM or SIGHUP. Use it with `with`, in the main thread.

    What has not ended by itself within a part of `grace_s` is broken off by SystemExit, as by a second signal; what is
    still there after all of it ends at once. A signal that this process ignores stays ignored, as SIGHUP under nohup.
    """

    def __init__(self, stop: Callable[[], None], *, grace_s: float = 20.0) -> None:
        self._stop = stop
        self._grace_s = grace_s
        self._before: dict[int, Any] = {}
        self._timers: list[threading.Timer] = []

    def __enter__(self) -> Leaving:
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        for timer in self._timers:
            timer.cancel()
            timer.join()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._timers:
            raise SystemExit(_FORCED + number)
        logger.info("leaving: %s", signal.Signals(number).name)
        self._begin(_SOON * self._grace_s, lambda: os.kill(os.getpid(), number))
        self._begin(self._grace_s, lambda: os._exit(_FORCED + number))
        self._stop()

    def _begin(self, wait_s: float, act: Callable[[], None]) -> None:
        timer = threading.Timer(wait_s, act)
        timer.daemon = True
        self._timers.append(timer)
        timer.start()
