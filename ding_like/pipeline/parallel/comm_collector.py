"""Join a collector to a coordinator: tasks come in and segments go out, over HTTP and files."""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from typing import Any

import torch

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.agent import TaskHandle
from ding_like.comm.rest.service import CoordinatorService
from ding_like.comm.rest.weight_files import WeightsGoneError, read_weights, unflatten_state
from ding_like.comm.rest.worker_link import WorkerLink
from ding_like.data.segment_file import SegmentMeta, WrittenSegment, remove_segments, write_segment
from ding_like.errors import CommError
from ding_like.pipeline.build import EnvSetting
from ding_like.pipeline.parallel.zergling import BaseParallelCollector, Order, PolicyUpdate, StepData
from ding_like.pipeline.self_play import has_league
from ding_like.utils.configurable import Configurable
from ding_like.utils.registries import COMM_COLLECTOR_REGISTRY, PARALLEL_COLLECTOR_REGISTRY

logger = logging.getLogger(__name__)

_WAIT_S = 1.0  # for credit, before it is asked again
_TRIES = 5  # to read the newest weights before newer ones take their place


class BaseCommCollector(ABC, Configurable):
    """Bring tasks to a parallel collector and its data to a coordinator."""

    config: dict[str, Any] = {}

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        self._cfg = cfg
        self._collector: BaseParallelCollector | None = None

    @abstractmethod
    def get_policy_update_info(self, path: str) -> Any:
        """Return the newest weights of the policy `path`, None if they were returned before."""

    @abstractmethod
    def send_metadata(self, metadata: Any) -> Any:
        """Announce data to the coordinator and return the next order."""

    @abstractmethod
    def send_stepdata(self, stepdata: Any) -> Any:
        """Keep rows where the learner finds them."""

    @abstractmethod
    def start(self) -> None:
        """Become one of the coordinator's workers."""

    @abstractmethod
    def close(self) -> None:
        """Leave the coordinator and close the collector; may be called again."""

    @property
    @abstractmethod
    def collector_uid(self) -> str:
        """Return the name by which the coordinator knows this collector."""


@COMM_COLLECTOR_REGISTRY.register("flask_fs")
class FlaskFileSystemCollector(BaseCommCollector):
    """Collect for a coordinator that speaks HTTP; rows travel as segment files.

    `cfg` holds `main`, a compiled config, `seed`, and what WorkerLink reads. DI-engine's keys `host` and `port` are
    accepted: a worker dials in, so it listens nowhere.
    """

    def __init__(
        self,
        cfg: Mapping[str, Any],
        *,
        coordinator: CoordinatorService | None = None,
        env_setting: EnvSetting | None = None,
    ) -> None:
        """Prepare; `coordinator` stands in place of the one at `cfg.coordinator`."""
        super().__init__(cfg)
        self._env_setting = env_setting
        self._link = WorkerLink("collector", cfg, coordinator, resources=self.deal_with_resource())
        self._current: tuple[m.Task, TaskHandle] | None = None
        self._loaded: tuple[int, int] | None = None  # (attempt, version) of the weights returned last
        self._newest: m.PolicyVersion | None = None
        self._metadata_queue: deque[m.SegmentInfo] = deque()  # written, but not announced yet

    def start(self) -> None:
        self._link.start()

    def run(self) -> None:
        """Do the coordinator's tasks until the run is over. Raises what a task raised, after the coordinator knows."""
        self._link.agent.run(self._do)

    def stop(self) -> None:
        """End the current task soon and claim no more; may be called from a signal handler."""
        self._link.stop()

    def close(self) -> None:
        if self._collector is not None:
            self._collector.close()
            self._collector = None
        self._link.close()

    @property
    def collector_uid(self) -> str:
        return self._link.agent.worker_id

    # --- the coordinator's side

    def deal_with_resource(self) -> dict[str, Any]:
        """Return what this process has to offer."""
        return {"gpu": float(torch.cuda.device_count()), "cpu": float(os.cpu_count() or 1)}

    def deal_with_collector_start(self, task_info: Mapping[str, Any]) -> dict[str, Any]:
        """Do a task, with the collector of the tasks before; return its result."""
        if self._collector is None:
            self._collector = self._create_collector(task_info)
        self._collector.start(task_info)
        return self._collector.get_finish_info()

    def deal_with_collector_data(self) -> list[m.SegmentInfo]:
        """Return the announcements that are still to be sent, the oldest first."""
        return list(self._metadata_queue)

    def _do(self, task: m.Task, handle: TaskHandle) -> dict[str, Any]:
        self._current, self._newest = (task, handle), task.policy
        if self._cfg["main"].policy.on_policy:
            self._drop_unannounced()
        info = {**task.cfg, "task_id": task.task_id, "policy_id": task.policy_id, "eval_flag": task.kind == "eval"}
        return self.deal_with_collector_start(info)

    def _drop_unannounced(self) -> None:
        """Forget segments of a task that was taken away: rows of old weights, which nobody waits for."""
        names = [each.name for each in self._metadata_queue]
        self._metadata_queue.clear()
        remove_segments(self._link.files.segments, names)

    def _create_collector(self, task_info: Mapping[str, Any]) -> BaseParallelCollector:
        cfg = {
            "main": self._cfg["main"],
            "seed": self._cfg["seed"],
            "collector_uid": self.collector_uid,
            "index": task_info["worker_index"],
        }
        name = self._cfg.get("collector_type") or ("marine" if has_league(cfg["main"]) else "zergling")
        cls = PARALLEL_COLLECTOR_REGISTRY.get(name, self._cfg.get("import_names") or ())
        kwargs = {} if self._env_setting is None else {"env_setting": self._env_setting}
        collector: BaseParallelCollector = cls(cfg, **kwargs)
        collector.send_stepdata = self.send_stepdata
        collector.send_metadata = self.send_metadata
        collector.ask_order = self.ask_order
        collector.get_policy_update_info = self.get_policy_update_info
        collector.get_weights = self.get_weights
        return collector

    # --- the collector's side

    def get_policy_update_info(self, path: str) -> PolicyUpdate | None:
        """Return the newest weights that the coordinator told of. Raises CommError if they cannot be read."""
        task, handle = self._task_and_handle()
        for left in reversed(range(_TRIES)):
            # An evaluation is of the weights that it was asked for, however many have come since.
            known = [task.policy] if task.kind == "eval" else [self._newest, handle.newest_policy]
            newest = max(filter(None, known), key=_order, default=None)
            if newest is None or _order(newest) == self._loaded:
                return None
            try:
                state = self.get_weights(path, newest)
            except WeightsGoneError as error:
                if task.kind == "eval" or not left:
                    raise
                logger.info("%s: the newest are asked for", error)  # this process was slow, or paused
                self._newest = self._ask(wait_s=0.0).policy
                continue
            self._loaded = _order(newest)
            return PolicyUpdate(newest.version, state, newest.attempt)
        return None

    def get_weights(self, path: str, version: m.PolicyVersion) -> Mapping[str, Any]:
        """Return one version of the collect mode's state of policy `path`. Raises CommError if it cannot be read."""
        files = self._link.files
        files.fetch_weights(path, version.attempt, version.version, nbytes=version.nbytes, sha256=version.sha256)
        flat = read_weights(files.weights, path, version.attempt, version.version, sha256=version.sha256)
        return unflatten_state(flat)

    # DI-engine's page gives its file name to this class only.
    def send_stepdata(self, path: str, stepdata: StepData) -> WrittenSegment:  # type: ignore[override]
        """Write rows as the segment file `path`. Raises SegmentError where the disk stays full for ten minutes."""
        task, files = self._task, self._link.files
        meta = SegmentMeta(
            task_id=task.task_id,
            attempt=task.attempt,
            worker_id=self.collector_uid,
            number=int(path.rpartition(".")[2]),
            policy_version=stepdata.policy_iter,
            env_steps=stepdata.env_steps,
            policy_attempt=stepdata.policy_attempt,
        )
        written = self._link.when_there_is_room(
            task, lambda: write_segment(files.segments, path, stepdata.batch.columns, meta)
        )
        files.share_segment(path)
        return written

    def send_metadata(self, metadata: m.SegmentInfo) -> Order:
        """Announce a segment, and those that could not be announced before it."""
        self._metadata_queue.append(metadata)
        task, waiting = self._task, self.deal_with_collector_data()
        reply = self._link.coordinator.send_data(
            self.collector_uid, task.task_id, m.SendData(task.attempt, tuple(waiting))
        )
        self._metadata_queue.clear()
        for rejected in reply.rejected:
            raise CommError(f"the coordinator refuses segment {rejected.name}: {rejected.code}.")
        return self._note(reply)

    def ask_order(self) -> Order:
        """Wait a second for credit."""
        handle = self._task_and_handle()[1]
        reply = self._ask(wait_s=_WAIT_S)
        if reply.credit == 0 and not reply.finish:
            handle.pause()
        return self._note(reply)

    def _ask(self, *, wait_s: float) -> m.TaskInfoReply:
        task = self._task
        message = m.TaskInfo(task.attempt, {}, wait_s=wait_s)
        return self._link.coordinator.task_info(self.collector_uid, task.task_id, message)

    def _note(self, reply: m.TaskInfoReply | m.SendDataReply) -> Order:
        """Remember the newest weights, and end the task if a heartbeat brought the wish to."""
        self._newest = reply.policy
        if self._task_and_handle()[1].finish_asked and not reply.finish:
            return m.TaskInfoReply(True, reply.env_step, reply.policy, 0)
        return reply

    @property
    def _task(self) -> m.Task:
        return self._task_and_handle()[0]

    def _task_and_handle(self) -> tuple[m.Task, TaskHandle]:
        if self._current is None:
            raise CommError("the collector has no task: it works for a coordinator only.")
        return self._current


def create_comm_collector(cfg: Mapping[str, Any]) -> BaseCommCollector:
    """Build the comm collector that `cfg.type` (or DI-engine's `comm_collector_type`) names.

    `import_names` says where it may be registered. Raises RegistryError (a KeyError) for an unknown name.
    """
    name = cfg.get("comm_collector_type") or cfg.get("type") or "flask_fs"
    collector: BaseCommCollector = COMM_COLLECTOR_REGISTRY.get(name, cfg.get("import_names") or ())(cfg)
    return collector


def _order(policy: m.PolicyVersion) -> tuple[int, int]:
    return (policy.attempt, policy.version)
