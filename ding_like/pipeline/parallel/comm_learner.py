"""Join a learner to a coordinator: batches come in, weights and priorities go out, over HTTP and files."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from ding_like.comm import messages as m
from ding_like.comm.agent import TaskHandle, TaskLeftError
from ding_like.comm.service import CoordinatorService
from ding_like.comm.weight_files import read_weights, write_weights
from ding_like.data.batch import TransitionBatch
from ding_like.data.segment_file import read_segment, read_with_retries
from ding_like.errors import CheckpointError, CommError
from ding_like.pipeline.build import EnvSetting
from ding_like.pipeline.parallel.batch_source import BatchReader, BatchSource, Fetched
from ding_like.pipeline.parallel.full_disk import when_there_is_room
from ding_like.pipeline.parallel.judge import Judge
from ding_like.pipeline.parallel.learner_aggregator import LearnerAggregator
from ding_like.pipeline.parallel.publisher import Publisher
from ding_like.pipeline.parallel.row_check import RowCheck
from ding_like.pipeline.parallel.settings import buffer_size
from ding_like.pipeline.parallel.worker_link import WorkerLink
from ding_like.pipeline.self_play import Opponents
from ding_like.pipeline.spaces import fit_policy_config
from ding_like.policy import create_policy
from ding_like.types import Array
from ding_like.utils.configurable import Configurable
from ding_like.utils.files import is_full
from ding_like.utils.registries import COMM_LEARNER_REGISTRY
from ding_like.utils.resume import ResumeStore
from ding_like.utils.seeding import make_rng, set_pkg_seed
from ding_like.worker import BaseLearner, LearnerHook, create_learner

logger = logging.getLogger(__name__)

_NO_DATA_S = 600.0  # without a batch for so long, the learner gives up


class BaseCommLearner(ABC, Configurable):
    """Bring data to a learner and what it learned to a coordinator."""

    config: dict[str, Any] = {}

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        self._cfg = cfg

    @abstractmethod
    def send_policy(self, state_dict: Mapping[str, Any]) -> None:
        """Publish weights."""

    @abstractmethod
    def get_data(self, batch_size: int) -> Any:
        """Return what returns batch after batch."""

    @abstractmethod
    def send_learn_info(self, learn_info: Mapping[str, Any]) -> None:
        """Tell what was learned."""

    @abstractmethod
    def start(self) -> None:
        """Become one of the coordinator's workers."""

    @abstractmethod
    def close(self) -> None:
        """Leave the coordinator and close the learner; may be called again."""

    @property
    @abstractmethod
    def hooks4call(self) -> list[LearnerHook]:
        """Return the hooks that tell the coordinator what the learner does."""


@COMM_LEARNER_REGISTRY.register("flask_fs")
class FlaskFileSystemLearner(BaseCommLearner):
    """Learn for a coordinator that speaks HTTP; rows come and weights go as files.

    `cfg` holds `main`, a compiled config, `seed`, `num_batches` to ask for at once, `publish_interval_s`, and what
    WorkerLink reads. With `num_learners` above 1 it is the first of several on this machine, and holds what
    LearnerAggregator reads. The seed's keys `host` and `port` are accepted: a worker dials in, so it listens nowhere.
    """

    def __init__(
        self,
        cfg: Mapping[str, Any],
        *,
        coordinator: CoordinatorService | None = None,
        env_setting: EnvSetting | None = None,
        model: torch.nn.Module | None = None,
    ) -> None:
        """Prepare; `coordinator` stands in place of the one at `cfg.coordinator`."""
        super().__init__(cfg)
        self._main = cfg["main"]
        self._env_setting = env_setting
        self._model = model
        self._link = WorkerLink("learner", cfg, coordinator, resources=self.deal_with_resource())
        self._handle: TaskHandle | None = None
        self._task: m.Task | None = None
        self._policy: Any = None
        self._learner: BaseLearner | None = None
        self._judge: Judge | None = None
        self._row_check: RowCheck | None = None
        self._aggregator: LearnerAggregator | None = None
        self._source: BatchSource | None = None
        self._reader: BatchReader | None = None  # of batches that are brought, where there is no source
        self._have = 0  # serial of the last segment that was brought
        self._publisher: Publisher | None = None
        self._published: int | None = None
        self._published_s = 0.0
        self._first_s: float | None = None  # when the first batch came
        self._train_s = 0.0
        self._store = ResumeStore(Path(self._main.exp_name, "learner_state"), durable=False)
        self._saved_s = time.monotonic()
        self._num_updates = 0

    def start(self) -> None:
        self._link.start()

    def run(self) -> None:
        """Do the coordinator's tasks until the run is over. Raises what a task raised, after the coordinator knows."""
        self._link.agent.run(self._do)

    def stop(self) -> None:
        """End the current task soon and claim no more; may be called from a signal handler."""
        self._link.stop()

    def close(self) -> None:
        closing = (self._source, self._publisher, self._aggregator, self._learner, self._judge)
        self._source = self._publisher = self._aggregator = self._learner = self._judge = None
        for part in closing:
            if part is not None:
                part.close()
        self._link.close()

    def __del__(self) -> None:
        if hasattr(self, "_published_s"):  # the constructor came to its end
            self.close()

    # --- the coordinator's side

    def deal_with_resource(self) -> dict[str, Any]:
        """Return what this process has to offer."""
        return {"gpu": float(torch.cuda.device_count())}

    def deal_with_learner_start(self, task_info: Mapping[str, Any]) -> None:
        """Build policy and learner; `task_info` is a task of kind 'learn' as a dict."""
        self._task = m.Task(**task_info)
        cfg = self._main
        self._judge = Judge(cfg, seed=int(self._cfg["seed"]), env_setting=self._env_setting)
        self._row_check = RowCheck(self._judge.env.observation_space, self._judge.env.action_space)
        set_pkg_seed(int(self._cfg["seed"]), use_cuda=bool(cfg.policy.cuda))
        fitted = fit_policy_config(cfg.policy, self._judge.env)
        self._policy = create_policy(fitted, model=self._model)
        self._judge.face(Opponents(fitted, self._policy))
        shared: dict[str, Any] = {}
        if int(self._cfg.get("num_learners") or 1) > 1:
            self._aggregator = LearnerAggregator(self._cfg)
            self._aggregator.start(self._policy.learn_mode.state_dict(), self._policy.grad_vectors())
            shared = {"reducer": self._aggregator.reducer, "dist_info": (0, int(self._cfg["num_learners"]))}
        self._learner = create_learner(
            {**cfg.policy.learn.learner, "train_iterations": self._train_iterations()},
            **shared,
            policy=self._policy.learn_mode,
            rng=make_rng(int(self._cfg["seed"]), "learner"),
            exp_name=cfg.exp_name,
        )
        for hook in self.hooks4call:
            self._learner.register_hook(hook)
        self._learner.get_data = self.get_data
        if self._task.attempt > 1:
            self._go_on()

    def _go_on(self) -> None:
        """Take over what an earlier attempt at this run's task saved, if there is anything."""
        _, learner = self._started()
        run_id = self._link.run_id
        try:
            saved = self._store.load_newest()
        except CheckpointError as error:
            logger.info("the learner begins anew: %s", error)
            return
        if saved.meta.get("run_id") != run_id:
            logger.info("the learner begins anew: what is in %s is of another run", self._store.folder)
            return
        learner.policy.load_state_dict(saved.parts["policy"])
        learner.load_state_dict(saved.parts["learner"])
        logger.info("the learner goes on from iteration %s", f"{learner.train_iter:,}")

    def _save_if_due(self) -> None:
        if time.monotonic() - self._saved_s >= float(self._main.resume.save_every_s):
            self._save()

    def _save(self) -> None:
        """Save a point from which another attempt goes on."""
        _, learner = self._started()
        self._saved_s = time.monotonic()
        parts = {"policy": learner.policy.state_dict(), "learner": learner.state_dict()}
        try:
            self._store.save(learner.train_iter, parts, {"run_id": self._link.run_id})
        except OSError as error:
            if not is_full(error):
                raise
            self._warn(f"the disk is full ({error}): iteration {learner.train_iter} is not saved, an earlier one is")

    def deal_with_get_data(self) -> dict[str, Any]:
        """Return what the learner asks for: the fields of messages.Sample."""
        task, learner = self._started()
        return {
            "task_id": task.task_id,
            "attempt": task.attempt,
            "batch_size": self._rows(int(learner.policy.get_attribute("batch_size"))),
            "num_batches": 1,
            "cur_learner_iter": learner.train_iter,
            "have_segments_up_to": self._have,
        }

    def deal_with_learner_learn(self, data: m.SampleReply) -> dict[str, Any]:
        """Train on the batches of one reply, one after another; return the learner's info."""
        _, learner = self._started()
        if self._reader is None:
            self._reader = BatchReader(buffer_size(self._main), self.deal_with_get_data()["batch_size"])
        self._reader.take(Fetched([(each, self._read(each)) for each in data.new_segments], data.batches))
        if data.new_segments:
            self._have = data.new_segments[-1].serial
        while not self._reader.is_empty:
            learner.train(self._share(self._reader.draw()), data.env_step)
        return learner.learn_info

    def _do(self, task: m.Task, handle: TaskHandle) -> dict[str, Any]:
        """Train until the task is to be finished; return what the last model is worth."""
        self._handle = handle
        self.deal_with_learner_start(vars(task))
        assert self._learner is not None and self._judge is not None
        learner = self._learner
        learner.setup_dataloader()
        assert self._source is not None
        try:
            learner.start()
        finally:
            self._source.close()
        if self._link.is_leaving:
            self._save()
            raise TaskLeftError(f"asked to leave at iteration {learner.train_iter}")
        assert self._publisher is not None
        self._publisher.close()
        result: dict[str, Any] = {
            "env_step": self._source.env_step,
            "train_iter": self._num_updates,
            "train_s": self._train_s,
        }
        result["last_iter"] = learner.train_iter  # of the last model: learning may have gone on after it
        return {**result, **self._judge.play(self._policy.eval_mode)}

    # --- the learner's side

    @property
    def hooks4call(self) -> list[LearnerHook]:
        return [
            SendPolicyHook("send_policy_before_run", position="before_run", ext_args={"comm": self}),
            SendLearnInfoHook("send_learn_info_after_iter", position="after_iter", ext_args={"comm": self}),
            SendPolicyHook("send_policy_after_run", position="after_run", ext_args={"comm": self}),
        ]

    def policy_state(self) -> dict[str, Any]:
        """Return what collectors load."""
        state: dict[str, Any] = self._policy.collect_mode.state_dict()
        return state

    def send_policy(self, state_dict: Mapping[str, Any]) -> None:
        """Have weights published soon as the learner's present version, if that is newer than the last."""
        _, learner = self._started()
        if self._publisher is None:
            self._publisher = Publisher(self._publish)
        if self._published is None or learner.train_iter > self._published:
            self._published, self._published_s = learner.train_iter, time.monotonic()
            self._publisher.offer(learner.train_iter, state_dict["model"])

    def _publish(self, version: int, state: Mapping[str, torch.Tensor]) -> None:
        task, _ = self._started()
        files = self._link.files
        written = when_there_is_room(
            lambda: write_weights(files.weights, task.policy_id, task.attempt, version, state),
            tell=self._warn,
            wait=self._wait,
        )
        files.share_weights(task.policy_id, task.attempt, version)
        message = m.Publish(task.task_id, task.attempt, version, written.sha256, written.nbytes)
        self._link.coordinator.publish(self._link.agent.worker_id, task.policy_id, message)

    def get_data(self, batch_size: int) -> Callable[[], TransitionBatch | None]:
        """Return what waits for the next batch; None from it: the task is to be finished.

        Batches are fetched ahead of need by a thread. Raises CommError if no data come for ten minutes.
        """
        task, learner = self._started()
        source = BatchSource(
            self._link.coordinator,
            task,
            worker_id=self._link.agent.worker_id,
            read=self._read,
            batch_size=self._rows(batch_size),
            buffer_size=buffer_size(self._main),
            num_batches=int(self._cfg["num_batches"]),
            train_iter=learner.train_iter,
            waits_for_late=bool(self._main.policy.on_policy),
        )
        self._source, self._first_s = source, None

        def next_batch() -> TransitionBatch | None:
            self._publish_if_due()
            self._save_if_due()
            deadline = time.monotonic() + _NO_DATA_S
            while not self._finish_asked:
                batch = source.next(timeout_s=1.0)
                if batch is not None:
                    self._first_s = self._first_s or time.monotonic()
                    learner.collector_envstep = source.env_step
                    return self._share(batch)
                if source.finish:
                    break
                if time.monotonic() > deadline:
                    raise CommError(f"no batch has come for {_NO_DATA_S:g} s: no collector sends data.")
            if not self._link.is_leaving:
                self._take_final_weights()
            return None

        return next_batch

    def send_learn_info(self, learn_info: Mapping[str, Any]) -> None:
        """Report an update with the batch given out last; many reports travel together."""
        self._num_updates = learn_info["learner_step"]
        if self._first_s is not None:
            self._train_s = time.monotonic() - self._first_s
        if self._source is not None:
            priorities = learn_info["priority_info"] if self._main.policy.priority else {}
            if self._aggregator is not None:
                priorities = self._aggregator.merge_priority(priorities)
            self._source.report(learn_info["learner_step"], self._averages, priorities)

    @staticmethod
    def load_data_fn(path: str, meta: Mapping[str, Any], decompressor: Any) -> dict[str, Array]:
        """Return the columns of the segment file `path`; `meta` has its rows, sha256 and nbytes.

        `decompressor` is the seed's; segments are not compressed. Raises SegmentError for a file that is not as
        announced.
        """
        file = Path(path)
        name = file.name.removesuffix(".safetensors")
        columns, _ = read_with_retries(
            file.parent, name, rows=meta["rows"], sha256=meta["sha256"], nbytes=meta["nbytes"]
        )
        return columns

    # --- inside

    def _warn(self, text: str) -> None:
        self._link.warn(self._started()[0], text)

    def _wait(self, seconds: float) -> bool:
        return self._handle is not None and self._handle.wait(seconds)

    @property
    def _finish_asked(self) -> bool:
        return self._handle is not None and self._handle.finish_asked

    def _started(self) -> tuple[m.Task, BaseLearner]:
        if self._task is None or self._learner is None:
            raise CommError("the learner has no task: it works for a coordinator only.")
        return self._task, self._learner

    def _rows(self, batch_size: int) -> int:
        """Return the rows of one `train` call: on-policy, all that are collected for it."""
        policy = self._main.policy
        return int(policy.collect.n_sample) if policy.on_policy else batch_size

    def _train_iterations(self) -> int:
        limit = float(self._cfg.get("max_train_iter") or float("inf"))
        return int(min(limit, self._main.policy.learn.learner.train_iterations))

    def _read(self, segment: m.NewSegment) -> dict[str, Array]:
        """Read a segment, once, and look at its rows. Raises SegmentError for one that is not to be learned from."""
        files, check = self._link.files, self._row_check
        files.fetch_segment(segment.name, nbytes=segment.nbytes, sha256=segment.sha256)
        try:
            columns, _ = read_segment(
                files.segments, segment.name, rows=segment.rows, sha256=segment.sha256, nbytes=segment.nbytes
            )
        finally:
            files.forget_segment(segment.name)
        if check is not None:
            check(columns)
        return columns

    def _share(self, batch: TransitionBatch) -> TransitionBatch:
        """Return this learner's share of a batch."""
        return batch if self._aggregator is None else self._aggregator.share(batch)

    def _publish_if_due(self) -> None:
        """Publish by time, and at every iteration that an evaluation or on-policy collectors wait for."""
        _, learner = self._started()
        policy = self._main.policy
        is_awaited = policy.on_policy or learner.train_iter % policy.eval.evaluator.eval_freq == 0
        if is_awaited or time.monotonic() - self._published_s >= float(self._cfg["publish_interval_s"]):
            self.send_policy(self.policy_state())

    def _take_final_weights(self) -> None:
        """Go back to the weights whose evaluation ended the run: learning went on while it was played."""
        task, learner = self._started()
        worker_id = self._link.agent.worker_id
        final = self._link.coordinator.task_info(worker_id, task.task_id, m.TaskInfo(task.attempt, {})).policy
        if final is None or (final.attempt, final.version) >= (task.attempt, learner.train_iter):
            return
        files = self._link.files
        files.fetch_weights(task.policy_id, final.attempt, final.version, nbytes=final.nbytes, sha256=final.sha256)
        state = read_weights(files.weights, task.policy_id, final.attempt, final.version, sha256=final.sha256)
        self._policy.collect_mode.load_state_dict({"model": state})
        learner.last_iter.update(final.version)
        learner.info(f"the run ends with the weights of iteration {final.version}, whose evaluation ended it")

    def _averages(self) -> dict[str, Any]:
        _, learner = self._started()
        monitor = learner.monitor
        return {} if monitor is None else {name: float(value) for name, value in monitor.averages().items()}


class SendPolicyHook(LearnerHook):
    """Publish the learner's weights through `ext_args['comm']`."""

    default_priority = 10

    def __call__(self, engine: BaseLearner) -> None:
        comm: FlaskFileSystemLearner = self.ext_args["comm"]
        comm.send_policy(comm.policy_state())


class SendLearnInfoHook(LearnerHook):
    """Report what the learner did through `ext_args['comm']`."""

    default_priority = 30

    def __call__(self, engine: BaseLearner) -> None:
        info = engine.learn_info
        # The hooks of an iteration run before it is counted.
        self.ext_args["comm"].send_learn_info({**info, "learner_step": info["learner_step"] + 1})


def create_comm_learner(cfg: Mapping[str, Any]) -> BaseCommLearner:
    """Build the comm learner that `cfg.type` (or the seed's `comm_learner_type`) names.

    `import_names` says where it may be registered. Raises RegistryError (a KeyError) for an unknown name.
    """
    name = cfg.get("comm_learner_type") or cfg.get("type") or "flask_fs"
    learner: BaseCommLearner = COMM_LEARNER_REGISTRY.get(name, cfg.get("import_names") or ())(cfg)
    return learner
