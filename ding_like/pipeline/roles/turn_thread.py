"""Take turns in a thread of their own, ahead of whoever asks for them, and stand still between two on request."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ding_like.comm.workers.host import WorkerHandle
from ding_like.errors import CommError

logger = logging.getLogger(__name__)

_LOOK_S = 1.0  # between two looks at whether the thread lives
_SETTLE_S = 600.0  # for the turn under way
_STOP_S = 4.0  # likewise, where nobody waits for what comes of it


class TurnThread(threading.Thread):
    """Call `take` turn after turn: in the thread of whoever calls `step`, or (`is_ahead`) in this one.

    The thread takes at most one turn more than was asked for, from the first `step` on; `settle` holds it between two
    turns until the next one. What a turn raises, `step` raises.
    """

    def __init__(self, take: Callable[[], Mapping[str, Any]], *, is_ahead: bool, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.stopped = False
        self.outqueue: queue.Queue[Mapping[str, Any] | BaseException] = queue.Queue(maxsize=1)
        self._take = take
        self._is_ahead = is_ahead
        self._changed = threading.Condition()
        self._is_held = True  # the thread does not begin a turn
        self._is_between = True  # two turns
        if is_ahead:
            self.start()

    def step(self) -> Mapping[str, Any]:
        """Return what is said of the next turn. Raises what it raised, and CommError once the thread has ended."""
        if not self._is_ahead:
            return self._take()
        with self._changed:
            self._is_held = False
            self._changed.notify_all()
        info = self._next()
        with self._changed:  # there is room for one more
            self._changed.notify_all()
        if isinstance(info, BaseException):
            raise info
        return info

    def _next(self) -> Mapping[str, Any] | BaseException:
        while True:
            is_alive = self.is_alive()
            try:
                return self.outqueue.get(timeout=_LOOK_S if is_alive else 0.0)
            except queue.Empty:
                if not is_alive:
                    raise CommError(f"the thread '{self.name}' has ended: there is no turn to wait for.") from None

    def run(self) -> None:
        """Take turns until stopped; what one raises is the last thing in `outqueue`."""
        torch.set_flush_denormal(True)  # of this thread: see `training_process`
        while self._may_begin():
            try:
                self.outqueue.put(self._take())  # there is room: nobody else puts
            except BaseException as error:  # `take` raises it in the thread that waits for the turn
                self.stopped = True
                self.outqueue.put(error)

    def _may_begin(self) -> bool:
        with self._changed:
            self._is_between = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.stopped or not (self._is_held or self.outqueue.full()))
            self._is_between = self.stopped  # and stays so
            return not self.stopped

    def settle(self, *, timeout_s: float = _SETTLE_S) -> None:
        """Wait for the turn under way, and hold the thread until the next `step`: weights and counts stand still."""
        with self._changed:
            self._is_held = True
            if not self._changed.wait_for(lambda: self._is_between or not self.is_alive(), timeout_s):
                raise CommError(f"a turn of '{self.name}' is not over after {timeout_s:g} s: nothing can be saved now.")

    def stop(self, *, timeout_s: float = _STOP_S) -> bool:
        """End the thread after the turn under way, and tell whether it has ended in time; may be called again."""
        with self._changed:
            self.stopped = True
            self._changed.notify_all()
        if self.ident is not None and self is not threading.current_thread():
            self.join(timeout_s)
            if self.is_alive():
                logger.warning("a turn of '%s' is not over %g s after it was to stop.", self.name, timeout_s)
        return not self.is_alive()


class UpdaterThread(TurnThread):
    """Take turns: have rows collected, have gradients computed and apply them. Source: PyTorchRL's UpdaterThread.

    Synchronous, `step` takes one in the caller's thread; asynchronous, the thread does, which begins with the first.
    """

    # Any: the local worker is a GWorker, of a module above this one.

    def __init__(
        self, local_worker: Any, remote_workers: Sequence[WorkerHandle], decentralized_update_execution: bool,
        col_fraction_workers: float = 1.0, grad_execution: str = "Central", grad_communication: str = "synchronous",
    ) -> None:  # fmt: skip
        self.local_worker, self.remote_workers, self.num_workers = local_worker, remote_workers, len(remote_workers)
        self.decentralized_update_execution = decentralized_update_execution
        self.col_fraction_workers = col_fraction_workers
        self.grad_execution, self.grad_communication = grad_execution, grad_communication
        super().__init__(local_worker.step, is_ahead=grad_communication == "asynchronous", name="updater")
