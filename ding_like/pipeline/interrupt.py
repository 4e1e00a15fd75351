"""Turn the first Ctrl-C, SIGTERM or SIGHUP (a terminal that is closed) into a request that a loop can honour."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignal:
    """Hold whether SIGINT, SIGTERM or SIGHUP has come; a second one acts at once, as without a handler.

    A signal that this process ignores stays ignored, as SIGHUP under nohup. Use it with `with`. Outside the main
    thread, where Python allows no handlers, it stays silent. `tell` is called when the first one comes.
    """

    def __init__(self, tell: Callable[[], None] = lambda: None) -> None:
        self._tell = tell
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignal:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) is signal.SIG_IGN:
                    continue
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        self._restore()
        self._tell()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def leave(self) -> None:
        """Raise what the received signal would have: KeyboardInterrupt, or SystemExit with 128 + its number."""
        if self.received == signal.SIGINT:
            raise KeyboardInterrupt
        if self.received is not None:
            raise SystemExit(128 + self.received)
