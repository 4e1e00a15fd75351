"""Worker of a coordinator: an agent that claims tasks and runs them, and its link to the coordinator."""

from __future__ import annotations

import logging
import math
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict

import ding_like
from ding_like.comm.keys import load_keys
from ding_like.comm.rest import messages as m
from ding_like.comm.rest.auth import draw_secret
from ding_like.comm.rest.files import SharedFiles, StreamedFiles
from ding_like.comm.rest.http_client import CoordinatorService, HttpCoordinator
from ding_like.comm.rest.wire import RefusedError, UnreachableError
from ding_like.data.segment_file import SegmentError
from ding_like.errors import CommError, ConfigError
from ding_like.types import Config, Info

logger = logging.getLogger(__name__)

_PAUSE_S = 0.1  # at most, between two questions that had no answer yet
_CLAIM_S = 5.0  # that a claim may wait for a task
_JOIN_S = 10.0  # for the thread of heartbeats
_PATIENCE_S = 600.0
_GRACE_S = 20.0
_MODES = ("auto", "shared", "stream")
# Refusals of a task that is no longer this worker's.
_IS_OVER = ("stale_attempt", "finished", "unknown", "version_not_newer")


def host_name() -> str:
    """Return the name by which a coordinator knows this machine."""
    return socket.gethostname()[:64]


class Room(TypedDict):
    """Arguments of `when_there_is_room`."""

    report: Callable[[str], None]
    wait: Callable[[float], bool]


class TaskLeftError(CommError):
    """A worker leaves before its task is done: the task goes back into the queue."""


class TaskHandle:
    """Latest news of the coordinator about one task; heartbeats write it from their own thread."""

    def __init__(self, task: m.Task) -> None:
        self._task = task
        self._asked = threading.Event()
        self._in_heartbeats = task.policy
        self._in_answers = task.policy  # written by the task's own thread

    @property
    def newest_policy(self) -> m.PolicyVersion | None:
        """Newest weights that the coordinator announced; None: none yet."""
        known = [each for each in (self._in_heartbeats, self._in_answers) if each is not None]
        return max(known, key=lambda policy: (policy.attempt, policy.version), default=None)

    @property
    def finish_asked(self) -> bool:
        """Whether the task is to be finished now."""
        return self._asked.is_set()

    def take(self, reply: m.HeartbeatReply) -> None:
        """Take over what a heartbeat brought."""
        self._in_heartbeats = reply.policies.get(self._task.policy_id, self._in_heartbeats)
        if any(command.name == "stop" or command.task_id == self._task.task_id for command in reply.commands):
            self._asked.set()

    def note(self, policy: m.PolicyVersion | None) -> None:
        """Take over which weights an answer to the task itself said are the newest."""
        self._in_answers = policy

    def pause(self) -> None:
        """Wait a moment before the coordinator is asked again; return at once if the task is to be finished."""
        self._asked.wait(random.uniform(0.0, _PAUSE_S))

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
        self.coordinator = coordinator
        self._role = role
        self._incarnation = incarnation or secrets.token_hex(6)
        # By which the coordinator knows this worker from one that takes its name.
        self._secret = draw_secret()
        self._resources = dict(resources or {})
        self._stopped = threading.Event()
        self._job: tuple[m.Task, TaskHandle] | None = None
        self._heartbeat_s = 3.0
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self.is_cut_off = False  # while it was leaving, the coordinator did not answer
        self.worker_id = ""

    def register(self) -> None:
        """Become one of the coordinator's workers and begin to send heartbeats."""
        self.coordinator.hello()
        self._register()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._thread.start()

    def run(self, do: Callable[[m.Task, TaskHandle], Info]) -> None:
        """Do tasks until the run is over. Raises what a task raised, after it was reported to the coordinator."""
        while not self._stopped.is_set():
            task = self._claim()
            if task is None:
                continue
            try:
                result = do(task, self.begin(task))
            except RefusedError as error:
                if error.code not in _IS_OVER:
                    self._tell_failure(task, error)
                    raise
                logger.info("task %s was taken away: %s", task.task_id, error)
                continue
            except TaskLeftError as error:
                logger.info("task %s is left to others: %s", task.task_id, error)
                self._stopped.set()
                continue
            except Exception as error:  # a task runs the user's code; the coordinator gets its error
                if self._stopped.is_set() and isinstance(error, CommError):
                    logger.info("left in the middle of task %s: %s", task.task_id, error)
                    self.is_cut_off = True
                    continue
                self._tell_failure(task, error)
                raise
            finally:
                self._job = None
            self._finish(task, result)
        if self._failure is not None:
            raise self._failure

    def begin(self, task: m.Task) -> TaskHandle:
        """Make `task` the present one, if it is not yet; return its handle."""
        if self._job is None or self._job[0] != task:
            self._job = task, TaskHandle(task)
        if self._stopped.is_set():
            self._job[1].ask_to_finish()
        return self._job[1]

    @property
    def job(self) -> tuple[m.Task, TaskHandle]:
        """Present task and its handle. Raises CommError before there is one."""
        if self._job is None:
            raise CommError("the worker has no task: it works for a coordinator only.")
        return self._job

    def stop(self) -> None:
        """End the current task soon and claim no more; may be called from a signal handler."""
        self._stopped.set()
        job = self._job
        if job is not None:
            job[1].ask_to_finish()

    def close(self, *, timeout_s: float = _JOIN_S) -> None:
        """Leave, unless the coordinator did not answer lately, and end the thread, which is waited for `timeout_s`."""
        self.stop()
        if self._thread is None:
            return
        self._thread.join(timeout_s)
        self._thread = None
        if self.is_cut_off:
            return
        try:
            self.coordinator.leave(self.worker_id, m.Leave("it has ended"))
        except CommError as error:
            logger.debug("leaving was not heard: %s", error)

    def _register(self) -> None:
        registered = self.coordinator.register(
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
        self.worker_id = registered.worker_id
        self._heartbeat_s = registered.heartbeat_s

    def _register_again(self) -> None:
        """Register with a coordinator that has lost this worker, unless the run is over."""
        try:
            self._register()
        except RefusedError as error:
            if error.code != "finished":
                raise
            logger.info("there is nothing more to do: %s", error)
            self._stopped.set()

    def _claim(self) -> m.Task | None:
        try:
            reply = self.coordinator.claim(self.worker_id, m.Claim(_CLAIM_S))
        except RefusedError as error:
            if error.code != "unknown":
                raise
            self._register_again()
            self._stopped.wait(random.uniform(0.0, _PAUSE_S))
            return None
        if reply.task is None:
            self._stopped.wait(random.uniform(0.0, _PAUSE_S))
        return reply.task

    def _finish(self, task: m.Task, result: Info) -> None:
        try:
            reply = self.coordinator.finish_task(self.worker_id, task.task_id, m.FinishTask(task.attempt, result))
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
        message = f"{type(error).__name__}: {error}"[:2000]
        try:
            self.coordinator.fail_task(self.worker_id, task.task_id, m.FailTask(task.attempt, message))
        except CommError as told:
            logger.warning("the coordinator was not told of a failure: %s", told)

    def _beat(self) -> None:
        """Send a heartbeat every few seconds, until stopped."""
        while not self._stopped.wait(self._heartbeat_s):
            job = self._job
            beat = m.Heartbeat("idle" if job is None else job[0].kind)
            try:
                reply = self.coordinator.heartbeat(self.worker_id, beat)
            except RefusedError as error:
                logger.info("heartbeat refused: %s", error)  # claiming registers again
                continue
            except CommError as error:
                self._failure = error
                self.stop()
                return
            if job is not None:
                job[1].take(reply)
            if any(command.name == "stop" for command in reply.commands):
                self.stop()


Slave = WorkerAgent  # DI-engine's name of what a coordinator gives tasks to


def mark_shared(folder: Path, run_id: str) -> None:
    """Leave a sign by which workers see that a folder is the one that the coordinator of a run sees."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{run_id}.run").touch()


def is_shared(folder: Path, run_id: str) -> bool:
    """Tell whether a folder has the sign of a run."""
    return (folder / f"{run_id}.run").is_file()


class WorkerLink(WorkerAgent):
    """Worker with its own HTTP client, and with the files of the run.

    Read of `cfg`: `coordinator`, its URL; `key_file`, None if it takes anyone; `path_data` and `path_policy`, the
    folders of segments and weights; `communication_mode`: 'shared' works in these folders, 'stream' sends files through
    the coordinator, and 'auto' looks whether the folders are those that the coordinator sees; `weights`, whose `delta`
    asks for no more of them than has changed where they go through the coordinator; `retry_s`, for how long the
    coordinator is looked for, and `patience_s`, for how long it is waited for once it was found; `grace_s`, within
    which a worker that is asked to leave has left.
    """

    def __init__(
        self, role: str, cfg: Config, coordinator: CoordinatorService | None, *, resources: Mapping[str, float]
    ) -> None:
        self._cfg = cfg
        self._client: HttpCoordinator | None = None
        if coordinator is None:
            key_file = cfg.get("key_file")
            key = None if key_file is None else load_keys(key_file)[role]
            retry_s = float(cfg.get("retry_s") or 30.0)
            coordinator = self._client = HttpCoordinator(str(cfg["coordinator"]), role=role, key=key, retry_s=retry_s)
        super().__init__(coordinator, role, resources=resources)
        self._files: SharedFiles | None = None
        self.is_leaving = False  # before the run is over
        self._leave_by_s = math.inf

    def start(self) -> None:
        """Register, and find out how files travel."""
        try:
            self.register()
        except RefusedError as error:
            if error.code != "bad_key":
                raise
            raise CommError(
                f"the coordinator at {self._cfg.get('coordinator')} does not take this worker's key: {error}. Give "
                "--key-file the file that the coordinator was started with."
            ) from error
        self._files = self._open_files()
        if self._client is not None:
            self._client.be_patient(float(self._cfg.get("patience_s") or _PATIENCE_S))

    @property
    def run_id(self) -> str:
        """Id of the coordinator's run."""
        return self.coordinator.hello().run_id

    @property
    def files(self) -> SharedFiles:
        """Files shared with the run. Raises CommError before `start`."""
        if self._files is None:
            raise CommError("the worker has not been started.")
        return self._files

    def warn(self, task: m.Task, text: str) -> None:
        """Log a line, and have the coordinator show it to the user."""
        logger.warning("%s", text)
        self.coordinator.task_info(self.worker_id, task.task_id, m.TaskInfo(task.attempt, {"warning": text}))

    def ask_task(self, task: m.Task, *, wait_s: float = 0.0) -> m.TaskInfoReply:
        """Return the state of a task, after up to `wait_s` for rows that may be collected."""
        return self.coordinator.task_info(self.worker_id, task.task_id, m.TaskInfo(task.attempt, {}, wait_s=wait_s))

    @contextmanager
    def room(self, task: m.Task) -> Iterator[Room]:
        """Give what `when_there_is_room` takes beside the call, to wait on a full disk until the worker leaves.

        Raises TaskLeftError in that case; the task stays as it was.
        """
        try:
            yield {"report": lambda text: self.warn(task, text), "wait": self._stopped.wait}
        except (OSError, SegmentError) as error:
            if not self.is_leaving:
                raise
            raise TaskLeftError(f"asked to leave while the disk is full: {error}") from error

    def leave_soon(self) -> None:
        """End the current task soon and leave before the run is over; may be called from a signal handler."""
        self.is_leaving = True
        self._begin_to_leave()
        self.stop()

    def _begin_to_leave(self) -> None:
        """Set the time by which this worker has left, and wait no longer for a coordinator that does not answer."""
        self._leave_by_s = min(self._leave_by_s, time.monotonic() + float(self._cfg.get("grace_s") or _GRACE_S))
        if self._client is not None:
            self._client.hurry()

    def time_left(self, most_s: float) -> float:
        """Return for how long something may be waited for, at most: less where the worker is leaving."""
        return max(0.0, min(most_s, self._leave_by_s - time.monotonic()))

    def close(self, *, timeout_s: float = _JOIN_S) -> None:
        self._begin_to_leave()
        try:
            super().close(timeout_s=self.time_left(timeout_s))
        finally:
            if self._files is not None:
                self._files.close()
            if self._client is not None:
                self._client.close()

    def _open_files(self) -> SharedFiles:
        mode = self._cfg.get("communication_mode") or "auto"
        if mode not in _MODES:
            raise ConfigError(f"system.communication_mode is {mode!r}, expected one of {', '.join(_MODES)}.")
        data, policy = self._cfg.get("path_data"), self._cfg.get("path_policy")
        if mode == "shared" and (data is None or policy is None):
            raise ConfigError("system.communication_mode is 'shared': give system.path_data and system.path_policy.")
        asks_for_delta = bool((self._cfg.get("weights") or {}).get("delta"))
        is_common = mode == "auto" and data is not None and policy is not None and is_shared(Path(data), self.run_id)
        if self._client is None or mode == "shared" or is_common:
            if asks_for_delta:
                logger.info("system.weights.delta has no effect: all processes see the folder of weights")
            # As they are now: a link that takes the place of one later is not followed.
            return SharedFiles(Path(data or ".").resolve(), Path(policy or ".").resolve())
        logger.info("segments and weights are sent through the coordinator")
        return StreamedFiles(self._client, asks_for_delta=asks_for_delta)
