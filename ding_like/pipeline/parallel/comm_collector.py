"""Collectors of a parallel run, and their comm collectors: tasks come in and segments go out, over HTTP and files."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from itertools import count as count_from
from pathlib import Path

import numpy as np
import torch
from easydict import EasyDict

from ding_like.comm.channels import CollectRequest, RowSink, Segment, Version, WeightReader, Weights
from ding_like.comm.rest import messages as m
from ding_like.comm.rest.client import CoordinatorService
from ding_like.comm.rest.rows import RestRowSink
from ding_like.comm.rest.worker import RestWeightReader, Slave, TaskHandle, WorkerLink
from ding_like.comm.tensors import unflatten_state
from ding_like.config.tree import deep_merge
from ding_like.data.records import EpisodeRecord
from ding_like.data.segment_file import SegmentMeta, write_segment
from ding_like.envs import get_vec_env_setting
from ding_like.errors import CommError, ConfigError
from ding_like.pipeline.checks import has_league, required
from ding_like.pipeline.collect import PolicyWeights, RolloutWorker
from ding_like.pipeline.envs import EnvSetting, build_eval_env, versus
from ding_like.pipeline.parallel.settings import class_of
from ding_like.policy import Policy
from ding_like.types import Array, Config, EnvManager, Json, Setting, StepBatch
from ding_like.utils.bounds import Configurable
from ding_like.utils.log import build_logger, close_logger
from ding_like.utils.measure import Interval
from ding_like.utils.registries import COMM_COLLECTOR_REGISTRY, PARALLEL_COLLECTOR_REGISTRY
from ding_like.utils.seeding import make_rng
from ding_like.worker.collector.base import LoopCollector
from ding_like.worker.collector.loop import RolloutLoop

_WAIT_S = 1.0  # of a NaiveCollector for credit, before it asks again


class BaseParallelCollector(ABC, Configurable):
    """Base of the collectors of a parallel run: one task after another, until the process ends.

    `start` runs a task. Before each segment of it `_update_policy` is called; for each step of the envs
    `_policy_inference`, `_env_step` and `_process_timestep`; after each segment `_iter_after_hook`; at the end
    `_finish_task`. A sub-class may override any of them. `sink` and `reader` are the channels to the coordinator.
    """

    config: dict[str, Json] = {
        "print_freq": 5  # seconds between two lines in the collector's log
    }

    def __init__(self, cfg: Config, *, sink: RowSink | None = None, reader: WeightReader | None = None) -> None:
        """Open the log. `cfg` holds `main`, a compiled config, `seed`, `collector_uid` and `index`."""
        self._main = cfg["main"]
        self._cfg = EasyDict(deep_merge(self.config, {key: value for key, value in cfg.items() if key != "main"}))
        self._collector_uid = str(self._cfg.collector_uid)
        self._setup_logger()
        self._setup_timer()
        self._sink = sink
        self._reader = reader
        self._policy: Policy | None = None
        self._finish_info: dict[str, Json] = {}

    def _setup_logger(self) -> None:
        """Open the collector's text log."""
        self._logger, _ = build_logger(Path(self._main.exp_name, "log", "collector"), self._collector_uid)

    def _setup_timer(self) -> None:
        """Set up the clock of log lines, one every `print_freq` seconds."""
        self._timer = Interval(float(self._cfg.print_freq), starts_due=True)

    def start(self, task_info: Config) -> None:
        """Run one task until it is done or the coordinator ends it."""
        self._start_thread()
        try:
            self._finish_info = self._finish_task(self._run(task_info))
        finally:
            self._join_thread()

    @abstractmethod
    def _run(self, task_info: Config) -> dict[str, Json]:
        """Run one task and return its result."""

    def _start_thread(self) -> None:  # optional
        """Start the threads that a task needs: none."""

    def _join_thread(self) -> None:  # optional
        """Join what `_start_thread` started."""

    def _update_policy(self) -> None:  # optional
        """Load the newest weights, before each segment."""

    def _step(
        self, loop: RolloutLoop, setting: Setting, *, policy_version: int, idle: Array | None
    ) -> list[EpisodeRecord]:
        self._loop = loop  # of the envs
        lanes, actions = self._policy_inference(setting, policy_version=policy_version, idle=idle)
        return self._process_timestep(self._env_step(lanes, actions))

    def _policy_inference(self, setting: Setting, *, policy_version: int, idle: Array | None) -> tuple[Array, Array]:
        """Return the lanes [R] that are ready and not `idle` [E], and the policy's actions for them [R, A...]."""
        return self._loop.act(setting, policy_version=policy_version, idle=idle)

    def _env_step(self, lanes: Array, actions: Array) -> StepBatch:
        """Step the envs of `lanes` [R] with `actions` [R, A...]."""
        return self._loop.manager.step(lanes, actions)

    def _process_timestep(self, timestep: StepBatch) -> list[EpisodeRecord]:
        """Log the transitions of a step; return the episodes that ended."""
        return self._loop.close(timestep)

    def _iter_after_hook(self, segment: Segment) -> None:  # optional
        """Do what follows a segment that was sent."""

    def _finish_task(self, result: dict[str, Json]) -> dict[str, Json]:
        """Return the result of the task that ended, as it is sent to the coordinator."""
        return result

    def get_finish_info(self) -> dict[str, Json]:
        """Return the result of the task that ended last."""
        return self._finish_info

    def close(self) -> None:
        """Close what the collector holds; may be called again."""
        close_logger(self._logger)

    @property
    def policy(self) -> Policy:
        """Policy that acts. Raises ConfigError before there is one."""
        if self._policy is None:
            raise ConfigError("the collector has no policy before its first task.")
        return self._policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self._policy = policy

    def info(self, s: str) -> None:
        self._logger.info(s)

    def error(self, s: str) -> None:
        self._logger.error(s)

    def debug(self, s: str) -> None:
        self._logger.debug(s)


class _Worker(RolloutWorker):
    """Rollout worker that calls the hooks of a parallel collector."""

    owner: ZerglingParallelCollector

    def update_policy(self) -> None:
        self.owner._update_policy()

    def after_segment(self, segment: Segment) -> None:
        self.owner._iter_after_hook(segment)


@PARALLEL_COLLECTOR_REGISTRY.register("zergling")
class ZerglingParallelCollector(BaseParallelCollector):
    """Parallel collector of one policy in many envs; envs and open episodes stay from task to task.

    A task is to collect segments as they are ordered, or, with `eval_flag`, to play the episodes of an evaluation.
    """

    config: dict[str, Json] = {
        **BaseParallelCollector.config,
        "type": "zergling",
        # DI-engine's keys: rows travel as they are, and weights are loaded whenever newer ones are known.
        "compressor": None,
        "update_policy_second": 0,
    }

    def __init__(
        self,
        cfg: Config,
        *,
        sink: RowSink | None = None,
        reader: WeightReader | None = None,
        env_setting: EnvSetting | None = None,
    ) -> None:
        super().__init__(cfg, sink=sink, reader=reader)
        self._setting: EnvSetting = env_setting or get_vec_env_setting(self._main.env)
        # Lanes of all collectors have seeds of their own.
        self._seed = int(self._cfg.seed) + int(self._cfg.index) * len(self._setting[1])
        name = f"collector{self._cfg.index}"
        self._end = _Worker.build(self._main, seed=self._seed, env_setting=self._setting, name=name, seen=self._as_seen)
        self._end.owner = self
        self.policy = self._end.policy
        if isinstance(self._end.collector, LoopCollector):
            self._end.collector.step_by(self._step)
        self._weights: PolicyWeights | None = None  # from the first task on
        self._evaluates = False  # from the first evaluation on

    def _run(self, task_info: Config) -> dict[str, Json]:
        return self._evaluate(task_info) if task_info["eval_flag"] else self._collect(task_info)

    def close(self) -> None:
        self._end.close()
        super().close()

    # --- collecting

    def _collect(self, task_info: Config) -> dict[str, Json]:
        if task_info.get("segment_episodes"):  # this collector's share of what one would collect at a time
            self.policy.collect_mode.set_attribute("n_episode", int(task_info["segment_episodes"]))
        if self._sink is None:
            raise ConfigError("the collector has nowhere to put rows: give it the channels `sink` and `reader`.")
        self._end.connect(self._loaded(str(task_info["policy_id"])), self._sink)
        return {"segments": self._end.run(is_done=lambda: self._is_done(task_info))}

    def _is_done(self, task_info: Config) -> bool:
        """Return whether a task to collect is done before the coordinator ends it."""
        return False

    def _update_policy(self) -> None:
        self._end.weights.take_newest()

    def _loaded(self, policy_id: str) -> PolicyWeights:
        if self._reader is None:
            raise ConfigError("the collector has no weights to act with: give it the channels `sink` and `reader`.")
        if self._weights is None:
            self._weights = PolicyWeights(self.policy, self._reader, policy_id=policy_id)
        return self._weights

    def _iter_after_hook(self, segment: Segment) -> None:
        if self._timer.pass_s():
            iteration, env_step = segment.version.update, self._end.collector.envstep
            self.info(f"policy of iteration {iteration}, env step {env_step}, {dict(segment.stats)}")

    # --- evaluating

    def _evaluate(self, task_info: Config) -> dict[str, Json]:
        weights = self._loaded(str(task_info["policy_id"]))
        if not self._evaluates:
            seed = int(self._cfg.seed)
            self._end.use_eval_envs(build_eval_env(self._main, seed=seed, env_setting=self._setting), seed=seed)
            self._evaluates = True
        number = int(task_info["number"])
        result = self._end.evaluate(int(task_info["n_episode"]), number=number, weights=weights)
        iteration = weights.version.update
        self.info(f"evaluation {number} of iteration {iteration}: mean {result.mean:g}")
        played = {name: getattr(result, name) for name in ("returns", "lengths", "duration_s")}
        return {**played, "version": iteration, "metrics": dict(result.metrics)}

    def _as_seen(self, envs: EnvManager) -> EnvManager:
        """Return the envs of collecting as the policy sees them."""
        return envs


@PARALLEL_COLLECTOR_REGISTRY.register("marine")
class MarineParallelCollector(ZerglingParallelCollector):
    """Parallel collector of games: the policy that learns, and its opponent of the task.

    A task brings the opponent's Weights in `opponent` (None: the newest of the one that learns) and says how many
    `games` it is for. Its result has `game_result`, the games that ended: 1 won, 0 drawn, -1 lost.
    """

    config: dict[str, Json] = {**ZerglingParallelCollector.config, "type": "marine"}

    def _as_seen(self, envs: EnvManager) -> EnvManager:
        self._versus = versus(envs, seed=self._seed, name="collector")
        return self._versus

    def _collect(self, task_info: Config) -> dict[str, Json]:
        self._game_result: list[int] = []
        opponent = task_info.get("opponent")
        if opponent is None:
            self._versus.use_opponent(self._end.opponents.newest_self())
        else:
            self._versus.use_opponent(self._end.opponents.past_self(unflatten_state(opponent.state)["model"]))
        self._versus.take_results()  # of a task that was broken off
        return {**super()._collect(task_info), "game_result": self._game_result}

    def _iter_after_hook(self, segment: Segment) -> None:
        super()._iter_after_hook(segment)
        self._game_result += self._versus.take_results()

    def _is_done(self, task_info: Config) -> bool:
        return len(self._game_result) >= int(task_info.get("games", 1))


class BaseCommCollector(ABC, Configurable):
    """Base of the links between a parallel collector and a coordinator."""

    config: dict[str, Json] = {}

    def __init__(self, cfg: Config) -> None:
        self._cfg = cfg
        self._collector: BaseParallelCollector | None = None

    @abstractmethod
    def get_policy_update_info(self, path: str) -> Weights | None:
        """Return the newest weights of the policy `path`, None if they were returned before."""

    @abstractmethod
    def send_metadata(self, metadata: m.SegmentInfo) -> CollectRequest:
        """Announce data to the coordinator and return the next order."""

    @abstractmethod
    def send_stepdata(self, stepdata: Segment) -> m.SegmentInfo:
        """Write rows where the learner finds them; return their metadata."""

    @abstractmethod
    def start(self) -> None:
        """Register with the coordinator."""

    @abstractmethod
    def close(self) -> None:
        """Leave the coordinator and close the collector; may be called again."""

    @property
    @abstractmethod
    def collector_uid(self) -> str:
        """Name of this collector at the coordinator."""


@COMM_COLLECTOR_REGISTRY.register("flask_fs")
class FlaskFileSystemCollector(BaseCommCollector):
    """Comm collector that speaks HTTP; rows travel as segment files.

    `run` does the coordinator's tasks: `deal_with_collector_start` runs one. Its collector loads weights by
    `get_policy_update_info`, writes rows by `send_stepdata` and announces them by `send_metadata`, which sends what
    `deal_with_collector_data` returns; `deal_with_collector_close` returns the task's result. A sub-class may override
    any of them.

    `cfg` holds `main`, a compiled config, `seed`, and what WorkerLink reads. DI-engine's keys `host` and `port` are
    accepted: a worker dials in, so it listens nowhere.
    """

    def __init__(
        self, cfg: Config, *, coordinator: CoordinatorService | None = None, env_setting: EnvSetting | None = None
    ) -> None:
        """Prepare; `coordinator` replaces the one at `cfg.coordinator`."""
        super().__init__(cfg)
        required(cfg, "main", "seed", *(() if coordinator else ("coordinator",)), of="a comm collector")
        self._env_setting = env_setting
        self._link = WorkerLink("collector", cfg, coordinator, resources=self.deal_with_resource())
        self._sink = RestRowSink(self._link)
        self._reader = RestWeightReader(self._link)
        self._have: Version | None = None  # that the part of the collector which asks for weights acts with

    def start(self) -> None:
        self._link.start()

    def run(self) -> None:
        """Do the coordinator's tasks until the run is over. Raises what a task raised, after the coordinator knows."""
        self._link.run(self._do)

    def stop(self) -> None:
        """End the current task soon and claim no more; may be called from a signal handler."""
        self._link.leave_soon()

    def close(self) -> None:
        if self._collector is not None:
            self._collector.close()
            self._collector = None
        self._link.close()

    @property
    def collector_uid(self) -> str:
        return self._link.worker_id

    # --- the coordinator's side

    def deal_with_resource(self) -> dict[str, float]:
        """Return what this process has to offer."""
        return {"gpu": float(torch.cuda.device_count()), "cpu": float(os.cpu_count() or 1)}

    def deal_with_collector_start(self, task_info: Config) -> None:
        """Run a task to its end, with the collector of the tasks before."""
        if self._collector is None:
            self._collector = self._create_collector(task_info)
        self._collector.start(task_info)

    def deal_with_collector_data(self) -> list[m.SegmentInfo]:
        """Return the metadata that is sent to the coordinator next: all that is queued, the oldest first."""
        return self._sink.waiting

    def deal_with_collector_close(self) -> dict[str, Json]:
        """Return the result of the task that has ended."""
        if self._collector is None:
            raise CommError("no task has been started.")
        return self._collector.get_finish_info()

    def _do(self, task: m.Task, handle: TaskHandle) -> dict[str, Json]:
        if self._cfg["main"].policy.on_policy:
            self._sink.drop_waiting()  # of a task that was taken away: rows of old weights, not wanted now
        info = {**task.cfg, "task_id": task.task_id, "policy_id": task.policy_id, "eval_flag": task.kind == "eval"}
        if info.get("opponent") is not None:
            info["opponent"] = self._reader.read(task.policy_id, m.PolicyVersion(**info["opponent"]))
        self.deal_with_collector_start(info)
        return self.deal_with_collector_close()

    def _create_collector(self, task_info: Config) -> BaseParallelCollector:
        cfg = {name: self._cfg[name] for name in ("main", "seed")}
        cfg.update(collector_uid=self.collector_uid, index=task_info["worker_index"])
        name = self._cfg.get("collector_type") or ("marine" if has_league(cfg["main"]) else "zergling")
        cls = PARALLEL_COLLECTOR_REGISTRY.get(name, self._cfg.get("import_names") or ())
        kwargs = {} if self._env_setting is None else {"env_setting": self._env_setting}
        collector: BaseParallelCollector = cls(cfg, sink=self, reader=self, **kwargs)
        return collector

    # --- the collector's side: this is its RowSink and its WeightReader

    def put(self, segment: Segment) -> CollectRequest:
        """Write a segment, send its metadata, and return what is to be done next; see `RestRowSink`."""
        return self.send_metadata(self.send_stepdata(self._sink.next_name(), segment))

    def order(self, *, timeout_s: float) -> CollectRequest:
        """Return what is to be done next, after a wait of `timeout_s` at most for rows that may be collected."""
        return self._sink.order(timeout_s=timeout_s)

    def newest(self, policy_id: str, *, newer_than: Version | None = None, timeout_s: float = 0.0) -> Weights | None:
        """Return the newest weights that `get_policy_update_info` gives in time; see `WeightReader`."""
        self._have = newer_than
        return self._reader.wait_for(lambda: self.get_policy_update_info(policy_id), timeout_s=timeout_s)

    # DI-engine's page gives its file name to this class only.
    def send_stepdata(self, path: str, stepdata: Segment) -> m.SegmentInfo:  # type: ignore[override]
        """Write rows as the segment file `path`; return its metadata."""
        return self._sink.write(path, stepdata)

    def send_metadata(self, metadata: m.SegmentInfo) -> CollectRequest:
        """Queue a segment's metadata, send what `deal_with_collector_data` returns, and return the next order."""
        self._sink.queue(metadata)
        return self._sink.send(self.deal_with_collector_data())

    def get_policy_update_info(self, path: str) -> Weights | None:
        """Return the newest weights of the policy `path`, None if the collector has them already."""
        return self._reader.read_newest(path, self._have)


def create_comm_collector(cfg: Config) -> BaseCommCollector:
    """Build the comm collector that `cfg.type` (or DI-engine's `comm_collector_type`) names.

    `import_names` says where it may be registered; "module:Class" names a class by itself. Raises RegistryError (a
    KeyError) for an unknown name, and ConfigError that names a missing key.
    """
    section = {**cfg, "type": cfg.get("comm_collector_type") or cfg.get("type")}
    return class_of(COMM_COLLECTOR_REGISTRY, section, BaseCommCollector)(cfg)


class NaiveCollector(Slave):
    """Collector that sends `count` segments of `rows` random rows, then finishes the task.

    An eval task is answered with returns of 0. Rows are what DQN collects in CartPole.
    """

    def __init__(
        self, coordinator: CoordinatorService, *, folder: str | os.PathLike[str], rows: int = 16, count: int = 20
    ) -> None:
        super().__init__(coordinator, "collector")
        self._folder, self._rows, self._count = Path(folder), rows, count
        self._rng, self._numbers = make_rng(0, "naive_collector"), count_from(0)

    def work(self) -> None:
        """Do tasks until the run is over."""
        self.run(self._process_task)

    def _process_task(self, task: m.Task, handle: TaskHandle) -> dict[str, Json]:
        if task.kind == "eval":
            version = 0 if task.policy is None else task.policy.version
            num = int(task.cfg["n_episode"])
            return {"returns": [0.0] * num, "lengths": [1] * num, "version": version, "duration_s": 0.0}
        sent, finish = 0, False
        while sent < self._count and not (finish or handle.finish_asked):
            reply: m.TaskInfoReply | m.SendDataReply = self.coordinator.task_info(
                self.worker_id, task.task_id, m.TaskInfo(task.attempt, {}, wait_s=_WAIT_S)
            )
            if reply.credit > 0 and not reply.finish:
                reply = self._send(task)
                sent += 1
            finish = reply.finish
        return {"segments": sent, "collector_done": sent == self._count}

    def _send(self, task: m.Task) -> m.SendDataReply:
        number = next(self._numbers)
        meta = SegmentMeta(task.task_id, task.attempt, self.worker_id, number, 0, self._rows)
        written = write_segment(self._folder, f"{self.worker_id}.{number:08d}", self._get_timestep(), meta)
        info = m.SegmentInfo(**written._asdict(), policy_version=0, env_steps=self._rows)
        return self.coordinator.send_data(self.worker_id, task.task_id, m.SendData(task.attempt, (info,)))

    def _get_timestep(self) -> dict[str, Array]:
        """Return the columns of one segment: those of DQN's single steps."""
        rng, rows = self._rng, self._rows
        return {
            "obs": rng.standard_normal((rows, 4), np.float32),
            "action": rng.integers(0, 2, rows),
            **{name: np.zeros(rows, np.int64) for name in ("lane", "env_id", "episode_id", "policy_version")},
            "step": np.arange(rows),
            "next_obs": rng.standard_normal((rows, 4), np.float32),
            "reward": np.ones(rows, np.float32),
            **{name: np.zeros(rows, bool) for name in ("terminated", "truncated")},
        }
