"""Worker agent: registers, sends heartbeats, claims tasks, runs them and reports their results."""

from __future__ import annotations

import logging
import os
import random
import secrets
import socket
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import ding_like
from ding_like.comm.rest import messages as m
from ding_like.comm.rest.refusal import RefusedError, UnreachableError
from ding_like.comm.rest.service import CoordinatorService
from ding_like.errors import CommError

logger = logging.getLogger(__name__)

_PAUSE_S = 0.1  # at most, between two questions that had no answer yet
_CLAIM_S = 5.0  # that a claim may wait for a task
_JOIN_S = 10.0
_MAX_TRACE = 20_000  # characters
_NAMES = 3  # that are tried, where another worker has taken one
# What a task hears once it is no longer this worker's. After "old_message" its answers are lost: it is given back.
_IS_OVER = ("stale_attempt", "finished", "unknown", "version_not_newer", "old_message")


def host_name() -> str:
    """Return the name by which a coordinator knows this machine."""
    return socket.gethostname()[:64]


class TaskLeftError(CommError):
    """A worker leaves before its task is done: the task goes back into the queue."""


class TaskHandle:
    """Latest news of the coordinator about one task; heartbeats write it from their own thread."""

    def __init__(self, task: m.Task) -> None:
        self._task = task
        self._asked = threading.Event()
        self._in_heartbeats = task.policy
        self._in_answers = task.policy  # written by the task's own thread
        self.env_step = 0

    @property
    def newest_policy(self) -> m.PolicyVersion | None:
        """Return the newest weights that the coordinator told of; None: none yet."""
        known = [each for each in (self._in_heartbeats, self._in_answers) if each is not None]
        return max(known, key=lambda policy: (policy.attempt, policy.version), default=None)

    @property
    def finish_asked(self) -> bool:
        """Tell whether the task is to be finished now."""
        return self._asked.is_set()

    def take(self, reply: m.HeartbeatReply) -> None:
        """Take over what a heartbeat brought."""
        self.env_step = reply.env_step
        self._in_heartbeats = reply.policies.get(self._task.policy_id, self._in_heartbeats)
        if any(command.name == "stop" or command.task_id == self._task.task_id for command in reply.commands):
            self._asked.set()

    def note(self, policy: m.PolicyVersion | None) -> None:
        """Take over which weights an answer to the task itself said are the newest."""
        self._in_answers = policy

    def wait(self, seconds: float) -> bool:
        """Wait; return at once, and True, if the task is to be finished."""
        return self._asked.wait(seconds)

    def pause(self) -> None:
        """Wait a moment before the coordinator is asked again."""
        self.wait(random.uniform(0.0, _PAUSE_S))

    def ask_to_finish(self) -> None:
        """Let the task end soon."""
        self._asked.set()


class WorkerAgent:
    """Client loop of a worker: claims task after task until the run is over or `stop` is called."""

    def __init__(
        self,
        coordinator: CoordinatorService,
        role: str,
        *,
        incarnation: str | None = None,
        resources: Mapping[str, float] | None = None,
    ) -> None:
        self._coordinator = coordinator
        self._role = role
        self._incarnation = incarnation or secrets.token_hex(6)
        # By which the coordinator knows this worker from one that takes its name.
        self._secret: str = getattr(coordinator, "secret", "") or secrets.token_hex(32)
        self._resources = dict(resources or {})
        self._stopped = threading.Event()
        self._handle: TaskHandle | None = None
        self._task: m.Task | None = None
        self._heartbeat_s = 3.0
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._is_cut_off = False  # while it was leaving, the coordinator did not answer
        self.worker_id = ""

    def register(self) -> None:
        """Become one of the coordinator's workers and begin to send heartbeats."""
        self._coordinator.hello()
        self._register()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._thread.start()

    def run(self, do: Callable[[m.Task, TaskHandle], dict[str, Any]]) -> None:
        """Do tasks until the run is over. Raises what a task raised, after the coordinator was told."""
        while not self._stopped.is_set():
            task = self._claim()
            if task is None:
                continue
            handle = TaskHandle(task)
            self._task, self._handle = task, handle
            try:
                result = do(task, handle)
            except RefusedError as error:
                if error.code not in _IS_OVER:
                    self._tell_failure(task, error)
                    raise
                logger.info("task %s was taken away: %s", task.task_id, error)
                if error.code == "old_message":
                    self._start_over(str(error))
                continue
            except TaskLeftError as error:
                logger.info("task %s is left to others: %s", task.task_id, error)
                self._stopped.set()
                continue
            except Exception as error:  # a task runs the user's code; the coordinator gets its error
                if self._stopped.is_set() and isinstance(error, CommError):
                    logger.info("left in the middle of task %s: %s", task.task_id, error)
                    self._is_cut_off = True
                    continue
                self._tell_failure(task, error)
                raise
            finally:
                self._task, self._handle = None, None
            self._finish(task, result)
        if self._failure is not None:
            raise self._failure

    def wait(self, seconds: float) -> bool:
        """Wait; return at once, and True, if this worker is to end."""
        return self._stopped.wait(seconds)

    def stop(self) -> None:
        """End the current task soon and claim no more; may be called from a signal handler."""
        self._stopped.set()
        handle = self._handle
        if handle is not None:
            handle.ask_to_finish()

    def close(self, *, timeout_s: float = _JOIN_S) -> None:
        """Leave, unless the coordinator did not answer lately, and end the thread, which is waited for `timeout_s`."""
        self.stop()
        if self._thread is None:
            return
        self._thread.join(timeout_s)
        self._thread = None
        if self._is_cut_off:
            return
        try:
            self._coordinator.leave(self.worker_id, m.Leave("it has ended"))
        except CommError as error:
            logger.debug("leaving was not heard: %s", error)

    def cut_off(self) -> None:
        """Note that the coordinator does not answer: the worker ends without telling it."""
        self._is_cut_off = True

    def _register(self) -> None:
        for left in reversed(range(_NAMES)):
            try:
                registered = self._coordinator.register(
                    m.Register(
                        self._role,
                        host_name(),
                        os.getpid(),
                        ding_like.__version__,
                        self._incarnation,
                        self._resources,
                        secret=self._secret,
                    )
                )
            except RefusedError as error:
                if error.code != "name_taken" or not left:
                    raise
                logger.warning("another worker goes by this one's name, so it takes another: %s", error)
                self._incarnation = secrets.token_hex(6)
                continue
            self.worker_id = registered.worker_id
            self._heartbeat_s = registered.heartbeat_s
            return

    def _start_over(self, why: str) -> None:
        """Give tasks back whose answers are lost, by leaving and coming again."""
        try:
            self._coordinator.leave(self.worker_id, m.Leave(why[:200]))
        except RefusedError as error:
            logger.debug("leaving was refused: %s", error)
        self._register_again()

    def _register_again(self) -> None:
        try:
            self._register()
        except RefusedError as error:
            if error.code != "finished":
                raise
            logger.info("there is nothing more to do: %s", error)
            self._stopped.set()

    def _claim(self) -> m.Task | None:
        try:
            reply = self._coordinator.claim(self.worker_id, m.Claim(_CLAIM_S))
        except RefusedError as error:
            if error.code not in ("unknown", "old_message"):
                raise
            if error.code == "unknown":
                self._register_again()
            # A lost answer does no harm: what it gave is given again.
            self._stopped.wait(random.uniform(0.0, _PAUSE_S))
            return None
        if reply.task is None:
            self._stopped.wait(random.uniform(0.0, _PAUSE_S))
        return reply.task

    def _finish(self, task: m.Task, result: dict[str, Any]) -> None:
        try:
            reply = self._coordinator.finish_task(self.worker_id, task.task_id, m.FinishTask(task.attempt, result))
        except RefusedError as error:
            if error.code not in _IS_OVER:
                self._tell_failure(task, error)
                raise
            logger.info("the result of %s came too late: %s", task.task_id, error)
            return
        if reply.shutdown:
            self._stopped.set()

    def _tell_failure(self, task: m.Task, error: Exception) -> None:
        if isinstance(error, UnreachableError):
            return  # there is no coordinator to tell
        trace = "".join(traceback.format_exception(error))[-_MAX_TRACE:]
        message = f"{type(error).__name__}: {error}"[:2000]
        try:
            self._coordinator.fail_task(
                self.worker_id, task.task_id, m.FailTask(task.attempt, type(error).__name__, message, trace)
            )
        except CommError as told:
            logger.warning("the coordinator was not told of a failure: %s", told)

    def _beat(self) -> None:
        """Send a heartbeat every few seconds, until stopped."""
        while not self._stopped.wait(self._heartbeat_s):
            task, handle = self._task, self._handle
            beat = m.Heartbeat(
                "idle" if task is None else task.kind,
                None if task is None else task.task_id,
                None if task is None else task.attempt,
            )
            try:
                reply = self._coordinator.heartbeat(self.worker_id, beat)
            except RefusedError as error:
                logger.info("heartbeat refused: %s", error)  # claiming registers again
                continue
            except CommError as error:
                self._failure = error
                self.stop()
                return
            if handle is not None:
                handle.take(reply)
            if any(command.name == "stop" for command in reply.commands):
                self.stop()


Slave = WorkerAgent  # DI-engine's name of what a coordinator gives tasks to
