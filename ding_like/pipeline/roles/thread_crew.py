"""Keep count of the threads that do the work of one process: which are ready, may start anew, or have ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from ding_like.comm.workers.failures import RestartBudget


class ThreadCrew:
    """Hold what the threads share that do the work of one process, and how each ended; they share it.

    `stop` is set from outside, and by the crew where there is nothing left to be done.
    """

    def __init__(
        self, names: Iterable[str], *, restarts_per_10min: int, stop: threading.Event, tell: Callable[..., None]
    ) -> None:
        """Hold threads of these names; `tell(kind, **plain)` says something to the parent, see `ChildProcess.tell`."""
        self.stop, self.tell = stop, tell
        self._lock = threading.Lock()  # holds all below
        self._budget = RestartBudget(restarts_per_10min)
        self._not_ready, self._at_work = set(names), set(names)
        self._failures: dict[str, BaseException] = {}  # for good, by thread

    def note_ready(self, name: str) -> None:
        """Take note that a thread can work; tell the parent when all can, and when this one can again."""
        with self._lock:
            is_last = self._not_ready == {name}
            self._not_ready.discard(name)
        self.tell("back", worker=name)
        if is_last:
            self.tell("ready")

    @property
    def is_ready(self) -> bool:
        """Tell whether all threads could work."""
        with self._lock:
            return not self._not_ready

    def may_restart(self) -> bool:
        """Tell whether the budget allows one more start of a thread."""
        with self._lock:
            return self._budget.spend()

    def note_end(self, name: str, failure: BaseException | None) -> None:
        """Take note that a thread is done, or has failed for good; `stop` is set if nothing is left to be done."""
        with self._lock:
            if failure is not None:
                self._failures[name] = failure
            elif not self.stop.is_set():
                self._at_work.discard(name)
            is_broken = failure is not None and bool(self._not_ready)
            if is_broken or self._at_work == self._failures.keys():
                self.stop.set()

    def end(self) -> None:
        """Raise why the threads could not go on, if so; else tell the parent if all have done what there was."""
        with self._lock:
            if self._failures and (self._not_ready or self._at_work == self._failures.keys()):
                raise next(iter(self._failures.values()))
            is_done = not self._at_work
        if is_done:
            self.tell("done")
