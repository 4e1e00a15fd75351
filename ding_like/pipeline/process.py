"""Turn the first Ctrl-C, SIGTERM or SIGHUP (a terminal that is closed) into a request that a loop can honour."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from ding_like.utils.processes import ENDING_SIGNALS

logger = logging.getLogger(__name__)

_SIGNALS = (signal.SIGINT, *ENDING_SIGNALS)
_SOON = 0.6  # of the grace, for the task; the rest is for closing
_FORCED = 128  # plus the signal's number: what a process that was ended returns


class StopSignal:
    """Record of the first SIGINT, SIGTERM or SIGHUP; a second one acts at once, as without a handler.

    A signal that this process ignores stays ignored, as SIGHUP under nohup. Use it with `with`. Outside the main
    thread, where Python allows no handlers, it stays silent. `tell` is called when the first one comes.
    """

    def __init__(self, tell: Callable[[], None] = lambda: None) -> None:
        self._tell = tell
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignal:
        if threading.current_thread() is threading.main_thread():
            self._before = _handle_by(self._handle, _SIGNALS)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _handle(self, number: int, frame: object) -> None:
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
            raise SystemExit(_FORCED + self.received)


def _handle_by(handle: Callable[[int, Any], None], numbers: Iterable[int]) -> dict[int, Any]:
    """Have those signals handled that this process does not ignore; return their handlers until now."""
    handled = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    return {number: signal.signal(number, handle) for number in handled}


@contextmanager
def graceful_shutdown(stop: Callable[[], None], *, grace_s: float = 20.0) -> Iterator[None]:
    """Call `stop` at the first SIGTERM or SIGHUP of a worker process; for its main thread.

    Work that has not ended within a part of `grace_s` is ended by SystemExit, as by a second signal; the process ends
    at once after all of it. A signal that this process ignores stays ignored, as SIGHUP under nohup.
    """
    timers: list[threading.Timer] = []

    def begin(wait_s: float, act: Callable[[], None]) -> None:
        timers.append(threading.Timer(wait_s, act))
        timers[-1].daemon = True
        timers[-1].start()

    def handle(number: int, frame: object) -> None:
        if timers:
            raise SystemExit(_FORCED + number)
        logger.info("leaving: %s", signal.Signals(number).name)
        begin(_SOON * grace_s, lambda: os.kill(os.getpid(), number))
        begin(grace_s, lambda: os._exit(_FORCED + number))
        stop()

    before = _handle_by(handle, ENDING_SIGNALS)
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
            timer.join()
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def training_process(*, num_threads: int = 1) -> Iterator[None]:
    """Set torch and numpy up for training, and back again: one thread unless told otherwise, no denormal numbers.

    Small matrices gain nothing from a second thread, and on a busy machine numpy's threads wait for each other, which
    was seen to cost 200 times. Adam's moments become denormal on the CPU, which costs up to 30 times.
    """
    threads = torch.get_num_threads()
    # torch has no getter: a denormal number that survives tells.
    flushed = bool((torch.full((), 1e-40) * 1.0) == 0)
    try:
        with _set_up(num_threads):
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_flush_denormal(flushed)


def prepare_worker() -> None:
    """Set a worker's process up as `training_process` does, until it ends; call it in the thread that computes."""
    _set_up(1)


def _set_up(num_threads: int) -> threadpool_limits:
    """Set torch and numpy up; denormal numbers are a setting of this thread and those that it starts."""
    torch.set_num_threads(num_threads)
    torch.set_flush_denormal(True)
    return threadpool_limits(num_threads)
