"""Serve many threads from one core: a lock around it, and waiting, with a deadline, for what is not there yet."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from ding_like.comm import messages as m
from ding_like.comm.refusal import RefusedError
from ding_like.comm.service import Stamp
from ding_like.pipeline.parallel.core import CoordinatorCore
from ding_like.pipeline.parallel.core.status import status_of

T = TypeVar("T")

MAX_WAIT_S = 5.0
_LONGEST_S = 60.0  # that may be asked for


class LockedService:
    """Be the CoordinatorService of one core. `wait_s` of a message is how long its answer may be waited for."""

    def __init__(self, core: CoordinatorCore, *, max_waiting: int = 8) -> None:
        """At most `max_waiting` callers wait at once; others are answered at once, and are to ask again later."""
        self._core = core
        self._changed = threading.Condition()
        self._max_waiting = max_waiting
        self._waiting = 0
        self._last: dict[tuple[str, str], tuple[int, Any]] = {}  # (worker, channel) -> number and answer
        self._secrets: dict[str, str] = {}

    def answer(self, name: str, worker_id: str, ids: tuple[str, ...], message: Any, stamp: Stamp | None) -> Any:
        """Answer a message by the method `name`, or repeat the answer that the same stamp of this worker had."""
        if stamp is None:
            return getattr(self, name)(worker_id, *ids, message)
        number, known = self._last.get((worker_id, stamp.channel), (0, None))
        if stamp.number < number:
            raise RefusedError("old_message", f"message {stamp.number} of {stamp.channel} is older than {number}")
        if stamp.number == number:
            return known
        reply = getattr(self, name)(worker_id, *ids, message)
        self._last[worker_id, stamp.channel] = (stamp.number, reply)
        return reply

    def secret_of(self, worker_id: str) -> str | None:
        """Return the secret that a worker registered with; None for a worker that is not there."""
        return self._secrets.get(worker_id)

    def hello(self) -> m.Hello:
        return self._core.hello()

    def register(self, message: m.Register) -> m.Registered:
        known = self._secrets.get(f"{message.role}-{message.incarnation}", message.secret)
        if known != message.secret:
            raise RefusedError("name_taken", f"{message.role}-{message.incarnation} is another process")
        registered = self._call(lambda: self._core.register(message))
        self._secrets[registered.worker_id] = message.secret
        return registered

    def heartbeat(self, worker_id: str, message: m.Heartbeat) -> m.HeartbeatReply:
        return self._call(lambda: self._core.heartbeat(worker_id, message))

    def leave(self, worker_id: str, message: m.Leave) -> m.Ok:
        return self._call(lambda: self._core.leave(worker_id, message))

    def claim(self, worker_id: str, message: m.Claim) -> m.ClaimReply:
        """Wait for a task."""
        return self._until(
            lambda: self._core.claim(worker_id, message), lambda reply: reply.task is not None, message.wait_s
        )

    def send_data(self, worker_id: str, task_id: str, message: m.SendData) -> m.SendDataReply:
        return self._call(lambda: self._core.send_data(worker_id, task_id, message))

    def task_info(self, worker_id: str, task_id: str, message: m.TaskInfo) -> m.TaskInfoReply:
        """Wait for credit, or until the task is to be finished."""
        return self._until(
            lambda: self._core.task_info(worker_id, task_id, message),
            lambda reply: reply.finish or reply.credit > 0,
            message.wait_s,
        )

    def finish_task(self, worker_id: str, task_id: str, message: m.FinishTask) -> m.EndReply:
        return self._call(lambda: self._core.finish_task(worker_id, task_id, message))

    def fail_task(self, worker_id: str, task_id: str, message: m.FailTask) -> m.EndReply:
        return self._call(lambda: self._core.fail_task(worker_id, task_id, message))

    def sample(self, worker_id: str, buffer_id: str, message: m.Sample) -> m.SampleReply:
        """Wait for batches, or until the task is to be finished."""
        return self._until(
            lambda: self._core.sample(worker_id, buffer_id, message),
            lambda reply: reply.finish or reply.batches is not None or bool(reply.new_segments),
            message.wait_s,
            always=True,  # there is one learner, and all others wait for it
        )

    def update(self, worker_id: str, buffer_id: str, message: m.Update) -> m.UpdateReply:
        return self._call(lambda: self._core.update(worker_id, buffer_id, message))

    def publish(self, worker_id: str, policy_id: str, message: m.Publish) -> m.Ok:
        return self._call(lambda: self._core.publish(worker_id, policy_id, message))

    def status(self) -> dict[str, Any]:
        with self._changed:
            return status_of(self._core)

    def tick(self) -> None:
        """Take tasks back from workers that are not heard of any more."""
        self._call(self._core.tick)

    def lost(self, host: str, pid: int, reason: str) -> bool:
        """Take the tasks of a process that has died back at once; return whether it had done anything."""
        return self._call(lambda: self._core.lost(host, pid, reason))

    def drop_surplus(self) -> None:
        """Forget collect tasks that nobody is there to do."""
        self._call(self._core.drop_surplus)

    def fail(self, failure: str) -> None:
        """End the run with a reason."""
        self._call(lambda: self._core.fail(failure))

    def locked(self) -> AbstractContextManager[Any]:
        """Return what keeps the core as it is while it is looked at."""
        return self._changed

    def wait(self, timeout_s: float) -> None:
        """Return when something has changed, or after `timeout_s`."""
        with self._changed:
            self._changed.wait(timeout_s)

    def _call(self, ask: Callable[[], T]) -> T:
        with self._changed:
            try:
                return ask()
            finally:
                self._changed.notify_all()

    def _until(self, ask: Callable[[], T], is_enough: Callable[[T], bool], wait_s: float, *, always: bool = False) -> T:
        if not 0.0 <= wait_s <= _LONGEST_S:
            raise RefusedError("malformed", f"wait_s is {wait_s:g}; expected 0 to {_LONGEST_S:g}")
        deadline = time.monotonic() + min(wait_s, MAX_WAIT_S)
        with self._changed:
            reply = ask()
            if always or self._waiting < self._max_waiting:
                self._waiting += 1
                try:
                    while not is_enough(reply) and not self._core.is_over:
                        left = deadline - time.monotonic()
                        if left <= 0:
                            break
                        self._changed.wait(left)
                        reply = ask()
                finally:
                    self._waiting -= 1
            self._changed.notify_all()
            return reply
