"""Collect in a thread, ahead of whoever takes what was collected."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from ding_like.pipeline.roles.intake import Collected

_LOOK_S = 1.0  # between two looks at whether the thread is to end


class CollectorThread(threading.Thread):
    """Collect by `collect`: in the thread of whoever calls `step`, or ("asynchronous") here, ahead of it.

    While `max_queue_size` segments wait nothing more is asked for, which limits how old the policy is that collects.
    `broadcast` sends the weights out, in the caller's thread, before every `broadcast_interval`-th step.
    """

    def __init__(
        self,
        collect: Callable[[], Collected | None],
        *,
        col_communication: str = "synchronous",
        broadcast: Callable[[], object] = lambda: None,
        broadcast_interval: int = 1,
        max_queue_size: int = 100,
    ) -> None:
        super().__init__(name="collector thread", daemon=True)
        self.stopped = False
        self.outqueue: queue.SimpleQueue[tuple[Collected | None, BaseException | None]] = queue.SimpleQueue()
        self._room = threading.Semaphore(max_queue_size)
        self._collect = collect
        self._is_asynchronous = col_communication == "asynchronous"
        self._broadcast = broadcast
        self._broadcast_interval = broadcast_interval
        self._num_steps = 0

    def step(self, *, timeout_s: float = 1.0) -> Collected | None:
        """Return what came next, None if nothing did in time. Raises what collecting raised."""
        if self._num_steps % self._broadcast_interval == 0:
            self._broadcast()
        self._num_steps += 1
        if not self._is_asynchronous:
            return self._collect()
        if self.ident is None and not self.stopped:
            self.start()
        try:
            collected, error = self.outqueue.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if error is not None:
            raise error
        self._room.release()
        return collected

    def run(self) -> None:
        """Collect until stopped; what goes wrong is the last thing in the queue."""
        try:
            # Room first: calls that are given while there is none would be made with weights that are older then.
            while not self.stopped:
                has_room = self._room.acquire(timeout=_LOOK_S)
                if not has_room or self.stopped:
                    continue
                collected = self._collect()
                if collected is None:
                    self._room.release()
                else:
                    self.outqueue.put((collected, None))
        except BaseException as error:  # raised in the thread that reads the queue
            self.outqueue.put((None, error))

    def stop(self, *, timeout_s: float = 5.0) -> bool:
        """End the thread, and tell whether it has ended in time; what waits in the queue is dropped."""
        self.stopped = True
        self._room.release()  # should it wait
        if self.ident is not None:
            self.join(timeout_s)
        return not self.is_alive()
