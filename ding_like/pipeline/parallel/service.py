"""Thread-safe front of the core: a lock around it, and waits, each with a deadline, for what is not there yet."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.messages import ROUTES, CoordinatorService, Stamp
from ding_like.comm.rest.refusal import RefusedError
from ding_like.pipeline.parallel.core import CoordinatorCore

MAX_WAIT_S = 5.0
_LONGEST_S = 60.0  # that may be asked for
_BUSY_S = 2.0  # for the lock; it is held for long only while the state file cannot be written

# Messages that wait, up to their `wait_s`: when an answer is worth giving at once.
_ENOUGH: dict[str, Callable[[Any], bool]] = {
    "claim": lambda reply: reply.task is not None,
    "task_info": lambda reply: reply.finish or reply.credit > 0,
    "sample": lambda reply: reply.finish or reply.batches is not None or bool(reply.new_segments),
}


def _always(reply: Any) -> bool:
    return True


class LockedService(CoordinatorService):
    """Service of one core for many threads. `wait_s` of a message is how long its answer may be waited for.

    While the state file cannot be written, the writing thread keeps the lock, as memory is ahead of the file: others
    are refused with `not_ready` after two seconds, and are to ask again.
    """

    def __init__(self, core: CoordinatorCore, *, max_waiting: int = 8) -> None:
        """At most `max_waiting` callers wait at once; others are answered at once, and are to ask again later."""
        self._core = core
        self._changed = threading.Condition()
        self._news = threading.Event()  # apart from the lock, for callers that must not wait for it
        self._max_waiting = max_waiting
        self._waiting = 0
        self._is_asking = False  # within `_until`; read and written under the lock

    def answer(self, name: str, worker_id: str, ids: tuple[str, ...], message: Any, stamp: Stamp | None) -> Any:
        """Answer a message by the method `name`, or repeat the answer that the same stamp of this worker had."""
        if name not in ROUTES:
            raise RefusedError("unknown", f"there is no message {name}")

        def ask() -> Any:
            return getattr(self._core, name)(worker_id, *ids, message)

        if name == "heartbeat" and not (stamp and self._core.journal.has_channel(worker_id, stamp.channel)):
            # It changes nothing that a repetition would change again; its number counts where others' numbers do.
            with self.changing():
                return ask()
        return self._until(worker_id, stamp, ask, name, getattr(message, "wait_s", 0.0))

    def secret_of(self, worker_id: str) -> str | None:
        """Return the secret that a worker registered with; None for a worker that is not there."""
        return self._core.secret_of(worker_id)

    def hello(self) -> m.Hello:
        return self._core.hello()

    def register(self, message: m.Register) -> m.Registered:
        with self.changing() as core:
            return core.register(message)

    def call(self, name: str, worker_id: str, message: Any, item: str = "") -> Any:
        """Answer the message of a route, for workers in this process."""
        return self.answer(name, worker_id, (item,) if item else (), message, None)

    def status(self) -> dict[str, Any]:
        with self.locked():
            return self._core.status()

    def halt(self, why: str) -> None:
        """Answer nothing any more, though the run is not over. Needs no lock: a stuck thread may hold it."""
        self._core.halt(why)
        self._news.set()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep the core as it is while it is looked at. Raises RefusedError `not_ready` if others have it for long."""
        if not self._changed.acquire(timeout=_BUSY_S):
            raise RefusedError(
                "not_ready", "the coordinator waits until its state file can be written", retry_after_s=1.0
            )
        try:
            yield
        finally:
            self._changed.release()

    def wait(self, timeout_s: float) -> None:
        """Return when something has changed since the last call, or after `timeout_s`."""
        self._news.wait(timeout_s)
        self._news.clear()

    @contextmanager
    def changing(self) -> Iterator[CoordinatorCore]:
        """Hold the lock while the block changes the core. Raises RefusedError `not_ready` once the core has halted."""
        with self.locked():
            self._check_halted()
            try:
                yield self._core
            finally:
                # An answer that waits asks again whenever something changes: two of them would wake each other.
                if not self._is_asking:
                    self._tell()

    def _check_halted(self) -> None:
        if self._core.halted is not None:
            raise RefusedError("not_ready", f"the coordinator is about to end: {self._core.halted}", retry_after_s=1.0)

    def _tell(self) -> None:
        self._changed.notify_all()
        self._news.set()

    def _until(self, worker_id: str, stamp: Stamp | None, ask: Callable[[], Any], name: str, wait_s: float) -> Any:
        """Ask until the answer is worth giving, or the time is over; the journal is looked at each time."""
        if not 0.0 <= wait_s <= _LONGEST_S:
            raise RefusedError("malformed", f"wait_s is {wait_s:g}; expected 0 to {_LONGEST_S:g}")
        deadline = time.monotonic() + min(wait_s, MAX_WAIT_S)
        with self.locked():
            # There is one learner, and all others wait for it.
            may_wait = name == "sample" or self._waiting < self._max_waiting
            self._waiting += may_wait
            try:
                while True:
                    self._check_halted()
                    left = deadline - time.monotonic() if may_wait and not self._core.is_over else 0.0
                    # The last answer is kept, whatever it is.
                    is_final = _ENOUGH.get(name, _always) if left > 0.0 else _always
                    self._is_asking = True
                    try:
                        reply, is_done = self._core.once(worker_id, stamp, ask, is_final=is_final)
                    finally:
                        self._is_asking = False
                    if is_done:
                        return reply
                    self._changed.wait(left)
            finally:
                self._waiting -= may_wait
                self._tell()
