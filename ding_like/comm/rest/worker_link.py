"""Connect a worker to its coordinator: a client, an agent that uses it, and the files they share."""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.agent import TaskHandle, TaskLeftError, WorkerAgent
from ding_like.comm.rest.http_client import HttpCoordinator
from ding_like.comm.rest.keys import load_keys
from ding_like.comm.rest.refusal import RefusedError
from ding_like.comm.rest.service import CoordinatorService
from ding_like.comm.rest.shared_files import SharedFiles, StreamedFiles
from ding_like.data.segment_file import SegmentError
from ding_like.errors import CommError, ConfigError
from ding_like.utils.full_disk import when_there_is_room

logger = logging.getLogger(__name__)

T = TypeVar("T")

_PATIENCE_S = 600.0
_GRACE_S = 20.0
_JOIN_S = 10.0  # for the thread of heartbeats
_MODES = ("auto", "shared", "stream")


def mark_shared(folder: Path, run_id: str) -> None:
    """Leave a sign by which workers see that a folder is the one that the coordinator of a run sees."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{run_id}.run").touch()


def is_shared(folder: Path, run_id: str) -> bool:
    """Tell whether a folder has the sign of a run."""
    return (folder / f"{run_id}.run").is_file()


class WorkerLink:
    """Link of a worker to its coordinator: client, agent and files.

    Read of `cfg`: `coordinator`, its URL; `key_file`, None if it takes anyone; `path_data` and `path_policy`, the
    folders of segments and weights; `communication_mode`: 'shared' works in these folders, 'stream' sends files through
    the coordinator, and 'auto' looks whether the folders are those that the coordinator sees; `weights`, whose `delta`
    asks for no more of them than has changed where they go through the coordinator; `retry_s`, for how long the
    coordinator is looked for, and `patience_s`, for how long it is waited for once it was found; `grace_s`, within
    which a worker that is asked to leave has left.
    """

    def __init__(
        self, role: str, cfg: Mapping[str, Any], coordinator: CoordinatorService | None, *, resources: Mapping[str, Any]
    ) -> None:
        incarnation = secrets.token_hex(6)
        self._cfg = cfg
        self._client: HttpCoordinator | None = None
        if coordinator is None:
            key_file = cfg.get("key_file")
            key = None if key_file is None else load_keys(key_file)[role]
            retry_s = float(cfg.get("retry_s") or 30.0)
            self._client = HttpCoordinator(
                str(cfg["coordinator"]), role=role, key=key, incarnation=incarnation, retry_s=retry_s
            )
        self.coordinator: CoordinatorService = coordinator or self._client  # type: ignore[assignment]
        self.agent = WorkerAgent(self.coordinator, role, incarnation=incarnation, resources=resources)
        self._files: SharedFiles | None = None
        self.is_leaving = False  # before the run is over
        self._leave_by_s = math.inf

    def start(self) -> None:
        """Register, and find out how files travel."""
        try:
            self.agent.register()
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
        """Return which run the coordinator keeps."""
        return self.coordinator.hello().run_id

    @property
    def files(self) -> SharedFiles:
        """Return the files shared with the run. Raises CommError before `start`."""
        if self._files is None:
            raise CommError("the worker has not been started.")
        return self._files

    def warn(self, task: m.Task, text: str) -> None:
        """Log a line, and have the coordinator show it to the user."""
        logger.warning("%s", text)
        self.coordinator.task_info(self.agent.worker_id, task.task_id, m.TaskInfo(task.attempt, {"warning": text}))

    def ask_task(self, task: m.Task, *, wait_s: float = 0.0) -> m.TaskInfoReply:
        """Return how it stands with a task; up to `wait_s` are waited for rows that may be collected."""
        message = m.TaskInfo(task.attempt, {}, wait_s=wait_s)
        return self.coordinator.task_info(self.agent.worker_id, task.task_id, message)

    def when_there_is_room(self, task: m.Task, write: Callable[[], T]) -> T:
        """Return `write()`, waiting on a full disk for ten minutes at most, or until the worker leaves.

        Raises TaskLeftError in that case; the task stays as it was.
        """
        try:
            return when_there_is_room(write, tell=lambda text: self.warn(task, text), wait=self.agent.wait)
        except (OSError, SegmentError) as error:
            if not self.is_leaving:
                raise
            raise TaskLeftError(f"asked to leave while the disk is full: {error}") from error

    def stop(self) -> None:
        """End the current task soon and claim no more; may be called from a signal handler."""
        self.is_leaving = True
        self._begin_to_leave()
        self.agent.stop()
        self.hurry()

    def _begin_to_leave(self) -> None:
        grace_s = float(self._cfg.get("grace_s") or _GRACE_S)
        self._leave_by_s = min(self._leave_by_s, time.monotonic() + grace_s)

    def time_left(self, most_s: float) -> float:
        """Return for how long something may be waited for, at most: less where the worker is leaving."""
        return max(0.0, min(most_s, self._leave_by_s - time.monotonic()))

    def hurry(self) -> None:
        """Wait no longer for a coordinator that does not answer."""
        if self._client is not None:
            self._client.hurry()

    def close(self) -> None:
        """Leave the coordinator; may be called again."""
        self._begin_to_leave()
        self.hurry()
        try:
            self.agent.close(timeout_s=self.time_left(_JOIN_S))
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
        if self._client is None or mode == "shared" or (mode == "auto" and _sees(data, policy, self.run_id)):
            if asks_for_delta:
                logger.info("system.weights.delta has no effect: all processes see the folder of weights")
            return _shared(data or ".", policy or ".")
        logger.info("segments and weights are sent through the coordinator")
        return StreamedFiles(self._client, asks_for_delta=asks_for_delta)


class TaskUser:
    """Base of what works for one task of a worker after another."""

    def __init__(self, link: WorkerLink) -> None:
        self._link = link
        self._begun_task: tuple[m.Task, TaskHandle] | None = None

    def begin(self, task: m.Task, handle: TaskHandle) -> None:
        """Work for a task from now on."""
        self._begun_task = task, handle

    @property
    def task(self) -> m.Task:
        """Return the task. Raises CommError before there is one."""
        return self._begun()[0]

    def _begun(self) -> tuple[m.Task, TaskHandle]:
        if self._begun_task is None:
            raise CommError("the worker has no task: it works for a coordinator only.")
        return self._begun_task


def _sees(data: str | Path | None, policy: str | Path | None, run_id: str) -> bool:
    """Tell whether the folders are those that the coordinator of a run sees."""
    return data is not None and policy is not None and is_shared(Path(data), run_id)


def _shared(data: str | Path, policy: str | Path) -> SharedFiles:
    """Return the folders as they are now: a link that takes the place of one later is not followed."""
    return SharedFiles(Path(data).resolve(), Path(policy).resolve())
