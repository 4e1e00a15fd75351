"""Comm learner: batches come in, weights and reports go out, over HTTP and files."""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import torch

from ding_like.comm.channels import Batch, Version, Weights
from ding_like.comm.rest import messages as m
from ding_like.comm.rest.client import CoordinatorService
from ding_like.comm.rest.messages import RefusedError
from ding_like.comm.rest.rows import CLOSE_S, RestBatchSource, RowCheck
from ding_like.comm.rest.worker import (
    FLUSH_S,
    RestWeightPublisher,
    TaskHandle,
    TaskLeftError,
    WorkerLink,
    read_published,
)
from ding_like.comm.tensors import state_of, unflatten_state
from ding_like.config import FrozenConfig
from ding_like.data.segment_file import SegmentError, read_segment, segment_file
from ding_like.errors import CheckpointError, CommError, SchemaError
from ding_like.pipeline.checks import has_league, required
from ding_like.pipeline.components import FINAL_NUMBER, build_evaluator, build_learner, final_episodes, rows_schema
from ding_like.pipeline.envs import EnvSetting, build_eval_env, build_policy, fit_policy_config, one_player_sees
from ding_like.pipeline.learners.synced import LearnerAggregator
from ding_like.pipeline.parallel.settings import batch_rows, buffer_size, class_of
from ding_like.pipeline.self_play import Opponents
from ding_like.pipeline.statistics import ENV_WRAPPERS, MergedStatistics, Statistics
from ding_like.policy import Policy
from ding_like.types import Array, Config, EnvManager, Info, Json, State
from ding_like.utils.bounds import Configurable
from ding_like.utils.checkpoint import ResumeStore
from ding_like.utils.files import is_full
from ding_like.utils.registries import COMM_LEARNER_REGISTRY
from ding_like.utils.seeding import make_rng
from ding_like.worker import BaseLearner, LearnerHook
from ding_like.worker.learner import LoadCkptHook

logger = logging.getLogger(__name__)

_LOOK_S = 1.0  # between two looks at whether the task is to be finished
_NO_DATA_S = 600.0  # without a batch for so long, the learner gives up
_TOLD = ("rows", "sha256", "nbytes", "row_bytes", "observed_bytes")  # of a segment file


class BaseCommLearner(ABC, Configurable):
    """Base of the links between a learner and a coordinator."""

    config: dict[str, Json] = {}

    def __init__(self, cfg: Config) -> None:
        self._cfg = cfg

    @abstractmethod
    def send_policy(self, state_dict: State) -> None:
        """Publish weights."""

    @abstractmethod
    def get_data(self, batch_size: int) -> Callable[[], Batch | None]:
        """Return a function that loads batch after batch."""

    @abstractmethod
    def send_learn_info(self, learn_info: Info) -> None:
        """Report an update."""

    @abstractmethod
    def start(self) -> None:
        """Register with the coordinator."""

    @abstractmethod
    def close(self) -> None:
        """Leave the coordinator and close the learner; may be called again."""

    @property
    @abstractmethod
    def hooks4call(self) -> list[LearnerHook]:
        """Hooks of the learner that send weights and reports to the coordinator."""


@COMM_LEARNER_REGISTRY.register("flask_fs")
class FlaskFileSystemLearner(BaseCommLearner):
    """Comm learner that speaks HTTP; rows come and weights go as files.

    `run` does the coordinator's task: `deal_with_learner_start` begins an attempt at it; then, for each update,
    `deal_with_get_data` returns what the learner asks for, `load_data_fn` loads the segments of its batch, and
    `deal_with_learner_learn` trains on it, which sends weights and reports by `send_policy` and `send_learn_info`. A
    sub-class may override any of them.

    `cfg` holds `main`, a compiled config, `seed`, `num_batches` to ask for at once, `publish_interval_s`, `weights`
    (whose `dtype` says how they travel), and what WorkerLink reads. With `num_learners` above 1 it is the first of
    several on this machine, and holds what LearnerAggregator reads. DI-engine's keys `host` and `port` are accepted: a
    worker dials in, so it listens nowhere.

    A learner that was out of reach for longer than its lease makes another attempt: with the weights in its memory
    where no other attempt has published meanwhile, else from the newest saved point.
    """

    def __init__(
        self,
        cfg: Config,
        *,
        coordinator: CoordinatorService | None = None,
        env_setting: EnvSetting | None = None,
        model: torch.nn.Module | None = None,
    ) -> None:
        """Prepare; `coordinator` replaces the one at `cfg.coordinator`. Raises ConfigError for a missing key."""
        super().__init__(cfg)
        keys = ("main", "seed", "num_batches", "publish_interval_s", *(() if coordinator else ("coordinator",)))
        required(cfg, *keys, of="a comm learner")
        self._main = main = cfg["main"]
        self._env_setting, self._model = env_setting, model
        self._parts = ExitStack()  # closes what an attempt leaves to the next one
        self._run_id = ""  # of the run that these parts are for
        self._last_attempt = 0  # that these parts were used for
        self._learned = 0  # batches learned from before the present attempt
        self._num_updates = 0  # that the learner counted last; it may learn on after the model that ends the run
        self._train_s = 0.0
        given = main.policy.learn.learner.get("train_iterations", float("inf"))
        self._max_updates = min(float(cfg.get("max_train_iter") or float("inf")), float(given))
        self._newer: tuple[int, dict[str, torch.Tensor]] | None = None  # beside the weights that ended the run
        self._store = ResumeStore(Path(main.exp_name, "learner_state"), durable=False)
        self._saved_s = time.monotonic()
        # Of the present attempt.
        self._publisher: RestWeightPublisher | None = None
        self._source: RestBatchSource | None = None  # once batches are asked for
        self._batch_size = 0  # of the source
        self._link = WorkerLink("learner", cfg, coordinator, resources=self.deal_with_resource())

    def start(self) -> None:
        self._link.start()

    def run(self) -> None:
        """Do the coordinator's tasks until the run is over. Raises what a task raised, after the coordinator knows."""
        self._link.run(self._do)

    def stop(self) -> None:
        """End the current task soon and claim no more; may be called from a signal handler."""
        self._link.leave_soon()

    def close(self) -> None:
        with ExitStack() as parts:  # all are closed, also where closing one of them fails
            parts.callback(self._link.close)
            parts.callback(self._parts.close)
            self._end_attempt(is_done=False)

    def __del__(self) -> None:
        if hasattr(self, "_link"):  # the constructor came to its end
            self.close()

    # --- an attempt at the task

    def deal_with_resource(self) -> dict[str, float]:
        """Return what this process has to offer."""
        return {"gpu": float(torch.cuda.device_count())}

    def deal_with_learner_start(self, task_info: Config) -> None:
        """Begin an attempt at `task_info`, a task of kind 'learn' as a dict; build policy and learner if need be."""
        task = m.Task(**task_info)
        self._end_attempt(is_done=False)
        run_id, published_by = self._link.run_id, 0 if task.policy is None else task.policy.attempt
        # From memory, if no other attempt has published meanwhile.
        if self._run_id != run_id or not max(published_by, 1) <= self._last_attempt <= task.attempt:
            self._parts.close()
            self.build(run_id)
            if task.attempt > 1:
                self.load_saved()
        self._last_attempt = task.attempt
        if self._aggregator is not None:
            self._aggregator.renew()  # the others have not got what was loaded since
        # An attempt does not continue from the checkpoint that the run began with.
        if task.attempt > 1 and self.learner.train_iter > 0:
            self.learner.remove_hooks(LoadCkptHook)
        if self._newer is not None:
            (version, state), self._newer = self._newer, None
            self._load_acting(version, state)
            self.statistics.show(None)
        self._num_updates = self.learner.train_iter
        self._link.begin(task)
        dtype = (self._cfg.get("weights") or {}).get("dtype", "exact")
        self._publisher = RestWeightPublisher(self._link, task, dtype=dtype)
        self._published, self._published_s = -1, -math.inf  # train_iter and time of the last weights
        self._first_s, self._attempt_s = math.inf, 0.0  # when the first batch came, and seconds of training since

    def build(self, run_id: str) -> None:
        """Build policy, learner and the envs of the final evaluation for a run; they stay for further attempts."""
        main, seed = self._main, int(self._cfg["seed"])
        with ExitStack() as parts:
            final = self.final_evaluation = FinalEvaluation(main, seed=seed, env_setting=self._env_setting)
            parts.callback(final.close)
            fitted = fit_policy_config(main.policy, final.env)
            self.policy = build_policy(fitted, seed=seed, model=self._model)
            self.statistics = MergedStatistics(final.manager)
            opponents = Opponents(fitted, self.policy)
            final.judge(self.policy, opponents)
            # A league's collectors see one player of each game, others all of them.
            acted_in = final.env if has_league(main) else final.manager
            self._schema = rows_schema(fitted, acted_in, seed=seed)
            self._row_check = RowCheck(final.env.observation_space, final.env.action_space, self._schema)
            rng = make_rng(seed, "learner")
            num_learners = int(self._cfg.get("num_learners") or 1)
            # Of several learners that act as one.
            aggregator = self._aggregator = LearnerAggregator(self._cfg) if num_learners > 1 else None
            if aggregator is not None:
                parts.callback(aggregator.close)
                aggregator.start(self.policy, rng=rng)
            self.learner = build_learner(
                main,
                self.policy,
                seed=seed,
                rng=rng,
                max_updates=self._max_updates,
                reducer=None if aggregator is None else aggregator.reducer,
                num_learners=num_learners,
            )
            parts.callback(self.learner.close)
            if aggregator is not None:
                aggregator.reward_model = self.learner.reward_model
                self.learner.share_batch = partial(self._share, aggregator)
            self.learner.checkpoint_parts[ENV_WRAPPERS] = self.statistics
            for hook in self.hooks4call:
                self.learner.register_hook(hook)
            self.learner.get_data = self.get_data
            self._parts = parts.pop_all()
        self._run_id, self._last_attempt, self._learned, self._train_s, self._newer = run_id, 0, 0, 0.0, None
        self._saved_s = time.monotonic()

    def _do(self, task: m.Task, handle: TaskHandle) -> dict[str, Json]:
        """Train until a task is to be finished; return what the last model is worth.

        Raises RefusedError where the attempt was taken away, TaskLeftError where the worker is to leave, CommError
        where one of several learners is lost: a point is saved then. It is called again for another attempt.
        """
        self.deal_with_learner_start(vars(task))
        try:
            self._train()
            if self._link.is_leaving:
                self.save()
                raise TaskLeftError(f"asked to leave at iteration {self.learner.train_iter}")
            env_step = 0 if self._source is None else self._source.env_step
            self._end_attempt(is_done=True)
            self.save()  # where the run is given more env steps, it continues from here
            # `last_iter` is that of the last model: learning may have gone on after it.
            counts = {"env_step": env_step, "train_iter": self._num_updates, "last_iter": self.learner.train_iter}
            self.statistics.evaluate_with(self.final_evaluation.manager)
            return {**counts, "train_s": self._train_s, **self.final_evaluation.play()}
        except CommError:
            # Updates are whole or not at all: another process continues from here.
            if self._aggregator is not None and self._aggregator.has_lost_a_learner:
                self.save()
            raise
        finally:
            self._end_attempt(is_done=False)

    def _train(self) -> None:
        """Update the policy until there are no more batches, or `max_train_iter` updates are done."""
        learner = self.learner
        before = learner.train_iter
        learner.call_hook("before_run")
        end = self._max_updates + learner.train_iter - before  # those of a checkpoint come on top
        load, batch_size = None, 0
        while learner.train_iter < end:
            demand = self.deal_with_get_data()
            if load is None or demand["batch_size"] != batch_size:
                batch_size = demand["batch_size"]
                load = self.get_data(batch_size)
            batch = load()
            if batch is None:
                break
            self.deal_with_learner_learn(batch)
        learner.call_hook("after_run")

    def deal_with_get_data(self) -> dict[str, Json]:
        """Return what the learner asks for next: task_id, buffer_id, batch_size, cur_learner_iter."""
        is_once = bool(self._main.policy.on_policy)  # then a batch is all that is collected for it
        size = batch_rows(self._main.policy) if is_once else int(self.learner.policy.get_attribute("batch_size"))
        ids = {"task_id": self.task.task_id, "buffer_id": self.task.buffer_id}
        return {**ids, "batch_size": size, "cur_learner_iter": self.learner.train_iter}

    def deal_with_learner_learn(self, data: Batch) -> Info:
        """Train on one batch and return the learner's info.

        Weights are sent every `publish_interval_s`, and where evaluation or on-policy rows wait for them.
        """
        self.learner.train(data)
        policy, train_iter = self._main.policy, self.learner.train_iter
        is_awaited = bool(policy.on_policy) or train_iter % policy.eval.evaluator.eval_freq == 0
        if is_awaited or time.monotonic() - self._published_s >= float(self._cfg["publish_interval_s"]):
            self.send_policy(self.policy_state())
        return self.learner.learn_info

    def _end_attempt(self, *, is_done: bool) -> None:
        """End the threads: after reports and the last weights have gone out where the attempt `is_done`.

        May be called again.
        """
        publisher, self._publisher = self._publisher, None
        if publisher is None:
            return
        link = self._link
        self._train_s += self._attempt_s
        failure = self._close_source(link.time_left(CLOSE_S))
        (publisher.close if is_done else publisher.abandon)(timeout_s=link.time_left(FLUSH_S))
        if failure is not None and not isinstance(failure, RefusedError):
            logger.info("the last reports have not gone out: %s", failure)
            link.is_cut_off |= link.is_leaving

    def _close_source(self, timeout_s: float) -> BaseException | None:
        """End the thread that fetches batches; return the error that ended it before, if any."""
        source, self._source = self._source, None
        if source is None:
            return None
        source.close(timeout_s=timeout_s)
        self._learned = source.num_learned
        return source.failure

    @property
    def task(self) -> m.Task:
        """Present task. Raises CommError before there is one."""
        return self._link.job[0]

    # --- weights out

    @property
    def hooks4call(self) -> list[LearnerHook]:
        def send_policy(learner: BaseLearner) -> None:
            self.send_policy(self.policy_state())

        def send_learn_info(learner: BaseLearner) -> None:
            info = learner.learn_info  # the hooks of an iteration run before it is counted
            self.send_learn_info({**info, "learner_step": info["learner_step"] + 1})

        return [
            SendHook("send_policy_before_run", 40, position="before_run", ext_args={"send": send_policy}),
            SendHook("send_learn_info_after_iter", 30, position="after_iter", ext_args={"send": send_learn_info}),
            SendHook("send_policy_after_run", 10, position="after_run", ext_args={"send": send_policy}),
        ]

    def policy_state(self) -> State:
        """Return what collectors load: the whole state of the collect mode, and by what its envs are normalised."""
        state, statistics = self.policy.collect_mode.state_dict(), self.statistics.weights()
        return {**state, ENV_WRAPPERS: statistics} if statistics else state

    def send_policy(self, state_dict: State) -> None:
        """Have weights published soon as the learner's present version, if that is newer than the attempt's last."""
        task, train_iter = self.task, self.learner.train_iter
        if train_iter <= self._published or self._publisher is None:
            return
        self._published, self._published_s = train_iter, time.monotonic()
        self._publisher.publish(Weights(task.policy_id, Version(task.attempt, train_iter), state_of(state_dict)))

    def _take_final_weights(self) -> None:
        """Go back to the weights whose evaluation ended the run, by which it is judged: learning went on meanwhile.

        Where a limit ended it, the coordinator names the newest weights, and those are the last: they go out first.
        Newer weights are kept beside, optimizer and targets stay: the next attempt continues with them, if there is
        one.
        """
        task, train_iter = self.task, self.learner.train_iter
        self.send_policy(self.policy_state())
        if self._publisher is not None:
            self._publisher.flush(timeout_s=self._link.time_left(FLUSH_S))
        final = self._link.ask_task(task).policy
        if final is None or (final.attempt, final.version) >= (task.attempt, train_iter):
            return
        weights = read_published(self._link.files, task.policy_id, final)
        self._newer = train_iter, {name: each.clone() for name, each in state_of(self.policy.collect_mode).items()}
        self.statistics.show(self._load_acting(final.version, weights.state))
        self.learner.info(f"the run ends with the weights of iteration {final.version}, whose evaluation ended it")

    def _load_acting(self, version: int, state: Mapping[str, torch.Tensor]) -> Statistics | None:
        """Load published weights; return the statistics that came with them, if any."""
        acting = unflatten_state(state)
        statistics: Statistics | None = acting.pop(ENV_WRAPPERS, None)
        self.policy.collect_mode.load_state_dict(acting)
        self.learner.last_iter.update(version)
        return statistics

    # --- batches in, reports out

    def get_data(self, batch_size: int) -> Callable[[], Batch | None]:
        """Return a function that waits for the next batch; None from it: the task is to be finished.

        Batches are fetched ahead of need by a thread; with another `batch_size` than before, those that were not drawn
        are lost. Raises CommError if no data come for ten minutes.
        """
        task = self.task
        if self._source is None or batch_size != self._batch_size:
            self._close_source(CLOSE_S)
            self._batch_size = batch_size
            self._source = RestBatchSource(
                self._link.coordinator,
                task,
                worker_id=self._link.worker_id,
                read=self.read_segment,
                batch_size=batch_size,
                buffer_size=buffer_size(self._main),
                num_batches=int(self._cfg["num_batches"]),
                schema=self._schema,
                train_iter=self.learner.train_iter,
                learned=self._learned,
                waits_for_late=bool(self._main.policy.on_policy),
            )
        return self._next_batch

    def read_segment(self, segment: m.NewSegment) -> dict[str, Array]:
        """Fetch, load and check a segment; return its columns.

        Raises SegmentError for one that is not to be learned from.
        """
        files = self._link.files
        files.fetch_segment(segment.name)
        try:
            meta: dict[str, Json] = dict(rows=segment.rows, sha256=segment.sha256, nbytes=segment.nbytes)
            meta.update(row_bytes=self._schema.row_bytes, observed_bytes=self.statistics.num_bytes)
            columns = self.load_data_fn(str(segment_file(files.segments, segment.name)), meta, None)
        finally:
            files.forget_segment(segment.name)
        self._row_check(columns)
        try:
            self.statistics.merge(meta.get("observed", {}), segment.serial)
        except SchemaError as error:
            raise SegmentError("schema", str(error)) from error
        return columns

    def _next_batch(self) -> Batch | None:
        """Return this learner's share of the next batch, after what is due was saved; None: there are no more."""
        if time.monotonic() - self._saved_s >= float(self._main.resume.save_every_s):
            self.save()
        batch = self._wait_for_batch()
        if batch is None:
            if not self._link.is_leaving:
                self._take_final_weights()
            return None
        self._first_s = min(self._first_s, time.monotonic())
        return batch if self._aggregator is None else self._share(self._aggregator, batch)

    def _share(self, aggregator: LearnerAggregator, batch: Batch) -> Batch:
        return aggregator.share(batch, train_iter=self.learner.train_iter)

    def _wait_for_batch(self) -> Batch | None:
        source, (_, handle), deadline = self._source, self._link.job, time.monotonic() + _NO_DATA_S
        assert source is not None, "get_data was called for a task"
        while not handle.finish_asked:
            batch = source.next(timeout_s=_LOOK_S)
            if batch is not None:
                self.learner.collector_envstep = source.env_step
                return batch
            if source.finished:
                break
            if time.monotonic() > deadline:
                raise CommError(f"no batch has come for {_NO_DATA_S:g} s: no collector sends data.")
        return None

    def send_learn_info(self, learn_info: Info) -> None:
        """Report an update with the batch given out last; many reports travel together."""
        monitor = self.learner.monitor

        def averages() -> dict[str, float]:
            return {} if monitor is None else {name: float(value) for name, value in monitor.averages().items()}

        self._num_updates = learn_info["learner_step"]
        self._attempt_s = max(time.monotonic() - self._first_s, 0.0)
        info = learn_info["priority_info"] if self._main.policy.priority else {}
        if self._aggregator is not None:  # this learner has the priorities of its share
            info = self._aggregator.merge_priority(info)
        if self._source is not None:
            self._source.feedback(self._num_updates, priority=info.get("priority"), info=averages)

    @staticmethod
    def load_data_fn(path: str, meta: dict[str, Json], decompressor: object) -> dict[str, Array]:
        """Return the columns [B, ...] of the segment file `path`, which must be as `meta` says.

        `meta` has its `rows`, `sha256` and `nbytes`, and gets `observed`: what the collector's env wrappers observed.
        `decompressor` is DI-engine's; segments are not compressed. Raises SegmentError for any other file.
        """
        file, told = Path(path), {name: meta[name] for name in _TOLD if name in meta}
        columns, read = read_segment(file.parent, file.name.removesuffix(".safetensors"), **told)
        meta["observed"] = read.observed
        return columns

    # --- saved points

    def load_saved(self) -> None:
        """Take over what another process, or this one, saved of this run, if there is anything."""
        try:
            saved = self._store.load_newest()
        except CheckpointError as error:
            logger.info("the learner starts from the beginning: %s", error)
            return
        if saved.meta.get("run_id") != self._run_id:
            logger.info("the learner starts from the beginning: %s belongs to another run", self._store.folder)
            return
        self.learner.policy.load_state_dict(saved.parts["policy"])
        self.learner.load_state_dict(saved.parts["learner"])
        self.statistics.load_resume_state(saved.parts.get(ENV_WRAPPERS, {}))
        self._learned = int(saved.meta.get("learned_updates", self.learner.train_iter))
        logger.info("the learner goes on from iteration %s", f"{self.learner.train_iter:,}")

    def save(self) -> None:
        """Save a point from which another attempt continues; on a full disk warn, and keep the earlier point."""
        self._saved_s = time.monotonic()
        learner = self.learner
        parts = {"policy": learner.policy.state_dict(), "learner": learner.state_dict()}
        if statistics := self.statistics.resume_state():
            parts[ENV_WRAPPERS] = statistics
        learned = self._learned if self._source is None else self._source.num_learned
        try:
            self._store.save(learner.train_iter, parts, {"run_id": self._run_id, "learned_updates": learned})
        except OSError as error:
            if not is_full(error):
                raise
            text = f"the disk is full ({error}): iteration {learner.train_iter} is not saved, an earlier one is"
            self._link.warn(self.task, text)


class FinalEvaluation:
    """Final evaluation and its envs, whose spaces are known before there is a policy."""

    def __init__(self, cfg: FrozenConfig, *, seed: int, env_setting: EnvSetting | None = None) -> None:
        self._cfg = cfg
        self.manager: EnvManager = build_eval_env(cfg, seed=seed, env_setting=env_setting)
        self._versus = one_player_sees(cfg, self.manager, seed=seed, name="judge")
        self.env: EnvManager = self.manager if self._versus is None else self._versus  # as the policy sees it
        self._evaluator = build_evaluator(cfg, self.env, None, seed=seed)

    def judge(self, policy: Policy, opponents: Opponents) -> None:
        """Choose the policy to evaluate, and in games its opponent; before the first `play`."""
        if self._versus is not None:
            opponents.face(self._versus, str(self._cfg.env.manager.opponent))
        self._evaluator.reset_policy(policy.eval_mode)

    def play(self) -> dict[str, Json]:
        """Return what the policy is worth: `eval_value`, the mean of `eval_value_raw`, and lengths."""
        final = self._evaluator.play(final_episodes(self.env), number=FINAL_NUMBER)
        value = {"eval_value": final.mean, "eval_value_raw": final.returns, "eval_metrics": dict(final.metrics)}
        return {**value, "eval_lengths": final.lengths, "judge_s": final.duration_s}

    def close(self) -> None:
        """Close the envs; may be called again."""
        self._evaluator.close()


class SendHook(LearnerHook):
    """Hook that calls `ext_args['send']` with the learner, to send something to the coordinator."""

    def __call__(self, engine: BaseLearner) -> None:
        self.ext_args["send"](engine)


def create_comm_learner(cfg: Config) -> BaseCommLearner:
    """Build the comm learner that `cfg.type` (or DI-engine's `comm_learner_type`) names.

    `import_names` says where it may be registered; "module:Class" names a class by itself. Raises RegistryError (a
    KeyError) for an unknown name, and ConfigError that names a missing key.
    """
    section = {**cfg, "type": cfg.get("comm_learner_type") or cfg.get("type")}
    return class_of(COMM_LEARNER_REGISTRY, section, BaseCommLearner)(cfg)
