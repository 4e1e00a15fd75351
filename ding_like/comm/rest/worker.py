"""Worker of a coordinator: an agent that claims and runs tasks, its link, and weights as it sends and reads them."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import ding_like
from ding_like.comm.channels import Receipt, Version, Weights
from ding_like.comm.keys import load_keys
from ding_like.comm.rest import messages as m
from ding_like.comm.rest.client import (
    CoordinatorService,
    HttpCoordinator,
    SharedFiles,
    StreamedFiles,
    WeightsGoneError,
    read_weights,
    weights_file,
    write_weights,
)
from ding_like.comm.tensors import Encoded, WireDtype, encode_weights, weights_name_of
from ding_like.data.segment_file import SegmentError
from ding_like.errors import CommError, ConfigError
from ding_like.types import Config, Info
from ding_like.utils.files import when_there_is_room

logger = logging.getLogger(__name__)

T = TypeVar("T")

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


class TaskLeftError(CommError):
    """A worker leaves before its task is done: the task goes back into the queue."""


class TaskHandle:
    """Latest news of the coordinator about one task; heartbeats write it from their own thread."""

    def __init__(self, task: m.Task) -> None:
        self.in_answers = task.policy  # newest weights by the last answer to the task itself, for the task's own thread
        self._task = task
        self._asked = threading.Event()
        self._in_heartbeats = task.policy

    @property
    def newest_policy(self) -> m.PolicyVersion | None:
        """Newest weights that the coordinator announced; None: none yet."""
        known = [each for each in (self._in_heartbeats, self.in_answers) if each is not None]
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
        self._secret = m.draw_secret()
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
                message = m.FinishTask(task.attempt, result)
                if self.coordinator.finish_task(self.worker_id, task.task_id, message).shutdown:
                    self._stopped.set()
            except TaskLeftError as error:
                logger.info("task %s is left to others: %s", task.task_id, error)
                self._stopped.set()
            except Exception as error:  # a task runs the user's code; the coordinator gets its error
                if isinstance(error, m.RefusedError) and error.code in _IS_OVER:
                    logger.info("task %s was taken away, or its result came too late: %s", task.task_id, error)
                elif isinstance(error, CommError) and not isinstance(error, m.RefusedError) and self._stopped.is_set():
                    logger.info("left in the middle of task %s: %s", task.task_id, error)
                    self.is_cut_off = True
                else:
                    self._tell_failure(task, error)
                    raise
            finally:
                self._job = None
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
        own = (self._role, host_name(), os.getpid(), ding_like.__version__, self._incarnation, self._resources)
        registered = self.coordinator.register(m.Register(*own, secret=self._secret))
        self.worker_id = registered.worker_id
        self._heartbeat_s = registered.heartbeat_s

    def _claim(self) -> m.Task | None:
        task = None
        try:
            task = self.coordinator.claim(self.worker_id, m.Claim(_CLAIM_S)).task
        except m.RefusedError as error:
            if error.code != "unknown":
                raise
            try:  # the coordinator has lost this worker
                self._register()
            except m.RefusedError as refused:
                if refused.code != "finished":
                    raise
                logger.info("there is nothing more to do: %s", refused)
                self._stopped.set()
        if task is None:
            self._stopped.wait(random.uniform(0.0, _PAUSE_S))
        return task

    def _tell_failure(self, task: m.Task, error: Exception) -> None:
        if isinstance(error, m.UnreachableError):
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
            except m.RefusedError as error:
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
        except m.RefusedError as error:
            if error.code != "bad_key":
                raise
            raise CommError(
                f"the coordinator at {self._cfg.get('coordinator')} does not take this worker's key: {error}. Give "
                "--key-file the file that the coordinator was started with."
            ) from error
        self._files = self._open_files()
        if self._client is not None:
            self._client.retry_s = float(self._cfg.get("patience_s") or _PATIENCE_S)

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

    def when_there_is_room(self, task: m.Task, write: Callable[[], T]) -> T:
        """Return what `write` does, waiting on a full disk until the worker leaves.

        Raises TaskLeftError in that case; the task stays as it was.
        """
        try:
            return when_there_is_room(write, report=lambda text: self.warn(task, text), wait=self._stopped.wait)
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
            self._client.is_hurried.set()

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
        # The sign that `mark_shared` leaves.
        is_common = mode == "auto" and None not in (data, policy) and Path(str(data), f"{self.run_id}.run").is_file()
        if self._client is None or mode == "shared" or is_common:
            if asks_for_delta:
                logger.info("system.weights.delta has no effect: all processes see the folder of weights")
            # As they are now: a link that takes the place of one later is not followed.
            return SharedFiles(Path(data or ".").resolve(), Path(policy or ".").resolve())
        logger.info("segments and weights are sent through the coordinator")
        return StreamedFiles(self._client, asks_for_delta=asks_for_delta)


FLUSH_S = 30.0
_LOOK_S = 5.0
_TRIES = 5  # to read the newest weights before newer ones take their place
_TO = ("coordinator",)  # who takes weights, for all readers


class RestWeightPublisher:
    """Publisher that writes the newest weights as a file and announces them, in a thread of its own.

    It is for one attempt at a task: one that is over is raised as RefusedError. What the thread raises is raised by the
    next call. `dtype` says how numbers travel, as `encode` does.
    """

    def __init__(self, link: WorkerLink, task: m.Task, *, dtype: WireDtype = "exact") -> None:
        self._link, self._task = link, task
        self._dtype: WireDtype = dtype
        self._changed = threading.Condition()
        self._last: Version | None = None  # that was offered
        self._newest: Encoded | None = None  # that is offered and not begun
        self._is_closed = False
        self._is_idle = True  # nothing is offered and nothing under way
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
        self._thread.start()

    def publish(self, weights: Weights, *, to: Sequence[str] | None = None, wait_s: float | None = None) -> Receipt:
        """Have a copy of weights published soon, in place of older ones that were not begun; see `WeightPublisher`.

        Raises CommError for `to`: the coordinator tells all readers of weights.
        """
        if to is not None:
            raise CommError(f"weights cannot be sent to {list(to)} alone: the coordinator tells all readers of them.")
        is_new = self._last is None or weights.version > self._last
        encoded = encode_weights(weights, dtype=self._dtype) if is_new else None
        with self._changed:
            self._raise_failure()
            if encoded is None:
                return Receipt(skipped=_TO)
            if self._is_closed:
                raise CommError("weights are published after the publisher was closed.")
            self._last, self._newest, self._is_idle = weights.version, encoded, False
            self._changed.notify_all()
        if wait_s is None:
            return Receipt()
        return Receipt(delivered=_TO) if self._wait_until_idle(wait_s) else Receipt(failed=_TO)

    def flush(self, *, timeout_s: float = FLUSH_S) -> None:
        """Return when what was offered last is published. Raises CommError if that takes longer than `timeout_s`."""
        if not self._wait_until_idle(timeout_s):
            raise CommError(f"the last weights could not be published in {timeout_s:g} s.")

    def close(self, *, timeout_s: float = FLUSH_S) -> None:
        """Publish what was offered last, and end the thread; may be called again.

        Raises CommError if that takes longer than `timeout_s`.
        """
        if not self._end(timeout_s):
            raise CommError(f"the last weights could not be published in {timeout_s:g} s.")
        with self._changed:
            self._raise_failure()

    def abandon(self, *, timeout_s: float) -> bool:
        """End the thread without publishing what was offered last; return whether it has ended in time.

        What it raised does not matter any more.
        """
        with self._changed:
            self._newest = None
        return self._end(timeout_s)

    def _end(self, timeout_s: float) -> bool:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _wait_until_idle(self, timeout_s: float) -> bool:
        with self._changed:
            is_out = self._changed.wait_for(lambda: self._failure is not None or self._is_idle, timeout_s)
            self._raise_failure()
        return is_out

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    # --- the thread's side

    def _run(self) -> None:
        try:
            while (encoded := self._take()) is not None:
                self._write_and_announce(encoded)
        except BaseException as error:  # any error of this thread is raised in the learner's
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _take(self) -> Encoded | None:
        """Return the weights to publish next; None: it was closed, and there are none left."""
        with self._changed:
            self._is_idle = self._newest is None
            self._changed.notify_all()
            while not self._changed.wait_for(lambda: self._newest is not None or self._is_closed, _LOOK_S):
                pass
            encoded, self._newest = self._newest, None
            return encoded

    def _write_and_announce(self, encoded: Encoded) -> None:
        task, files, link = self._task, self._link.files, self._link
        policy_id, version = weights_name_of(encoded)
        written = link.when_there_is_room(task, lambda: write_weights(files.weights, encoded))
        files.share(weights_file(files.weights, policy_id, *version))
        message = m.Publish(task.task_id, **dataclasses.asdict(written))
        try:
            link.coordinator.publish(link.worker_id, policy_id, message)
        except m.RefusedError as error:
            if error.code != "version_not_newer":
                raise
            # It was taken before, and the answer to that was lost.
            logger.info("version %d was published before: %s", version.update, error)


class RestWeightReader:
    """Reader of the newest weights, for the present task of its link.

    A task of kind 'eval' has the weights that it asks for, however many come since.
    """

    def __init__(self, link: WorkerLink) -> None:
        self._link = link

    def newest(self, policy_id: str, *, newer_than: Version | None = None, timeout_s: float = 0.0) -> Weights | None:
        """Return the newest weights that the coordinator announced; see `WeightReader`."""
        return self.wait_for(lambda: self.read_newest(policy_id, newer_than), timeout_s=timeout_s)

    def wait_for(self, read: Callable[[], Weights | None], *, timeout_s: float) -> Weights | None:
        """Return what `read` gives, asking the coordinator until `timeout_s` is over or the task is to be finished."""
        _, handle = self._link.job
        deadline = time.monotonic() + timeout_s
        while (weights := read()) is None:
            if time.monotonic() >= deadline or handle.finish_asked:
                return None
            handle.pause()
            self._ask()
        return weights

    def read(self, policy_id: str, policy: m.PolicyVersion) -> Weights:
        """Return one version of a policy's weights. Raises CommError if it cannot be read."""
        return read_published(self._link.files, policy_id, policy)

    def read_newest(self, policy_id: str, newer_than: Version | None) -> Weights | None:
        """Return the newest weights that were announced, None if they are not above `newer_than`."""
        task, handle = self._link.job
        for left in reversed(range(_TRIES)):
            newest = task.policy if task.kind == "eval" else handle.newest_policy
            if newest is None or (newer_than is not None and (newest.attempt, newest.version) <= newer_than):
                return None
            try:
                return self.read(policy_id, newest)
            except WeightsGoneError as error:
                if task.kind == "eval" or not left:
                    raise
                logger.info("%s: the newest are asked for", error)  # this process was slow, or paused
                self._ask()
        return None

    def _ask(self) -> None:
        task, handle = self._link.job
        handle.in_answers = self._link.ask_task(task).policy


def read_published(files: SharedFiles, policy_id: str, policy: m.PolicyVersion) -> Weights:
    """Return weights that were announced. Raises WeightsGoneError if they are not kept any more, else CommError."""
    attempt, version = policy.attempt, policy.version
    files.fetch_weights(policy_id, attempt, version, sha256=policy.sha256)
    state = read_weights(files.weights, policy_id, attempt, version, sha256=policy.sha256)
    return Weights(policy_id, Version(attempt, version), state)
