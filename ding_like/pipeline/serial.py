"""Run everything in one process: collect, push, sample, train, evaluate, in turn."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from typing import Any

from ding_like.comm.channels import Version
from ding_like.comm.local import BatchOnce, LocalRows
from ding_like.config import FrozenConfig
from ding_like.data.rows import adapt_collect_mode
from ding_like.errors import ConfigError
from ding_like.pipeline.build import SerialParts
from ding_like.pipeline.checkpoint import Checkpointer
from ding_like.pipeline.interrupt import StopSignal
from ding_like.pipeline.learners.lock_step import Alone, LockStep, Turn
from ding_like.pipeline.report.progress import Limits, Progress
from ding_like.pipeline.report.run_console import RunConsole
from ding_like.pipeline.roles.collect import CollectRole
from ding_like.pipeline.roles.evaluate import EvaluateRole
from ding_like.pipeline.roles.loaded_weights import LoadedWeights
from ding_like.pipeline.roles.record import RunRecord, RunResult
from ding_like.pipeline.roles.train import TrainRole
from ding_like.pipeline.statistics import share_statistics
from ding_like.pipeline.update_ratio import UpdateRatio
from ding_like.policy import Policy
from ding_like.policy.random_policy import random_collect_mode
from ding_like.types import EnvManager
from ding_like.utils.resume import Saved
from ding_like.worker import EpisodeSerialCollector, IBuffer, SampleSerialCollector

logger = logging.getLogger(__name__)


class SerialRun:
    """Let the roles take turns until a limit is reached or an evaluation reaches `stop_value`.

    With a buffer `update_per_collect` updates follow each segment of rows, fewer while it holds too little; without
    one, each batch is learned from once. Roles share the policy. `checkpointer` saves points to resume from between
    two turns; with `saved` the run goes on from one. With `lock_step` this is the loop of one of several learners, each
    with its share of the config: all of them take the same turns, and the first alone evaluates and reports.
    """

    def __init__(
        self,
        cfg: FrozenConfig,
        parts: SerialParts,
        *,
        limits: Limits,
        console: RunConsole,
        checkpointer: Checkpointer | None = None,
        saved: Saved | None = None,
        lock_step: LockStep | None = None,
        batch_size: int | None = None,  # rows drawn for an update; None: the config's
    ) -> None:
        if saved is not None and checkpointer is None:
            raise ConfigError("a run that goes on from a saved point needs the checkpointer that knows its parts.")
        self._cfg = cfg
        self._parts = parts
        self._limits = limits
        self._console = console
        self._checkpointer = checkpointer
        self._saved = saved
        self._lock_step: LockStep = Alone() if lock_step is None else lock_step
        self._batch_size = cfg.policy.learn.batch_size if batch_size is None else batch_size

    def run(self) -> RunResult | None:
        """Train to the end, evaluate the last model afresh, and write `result.json`; None where another learner does.

        The first SIGINT or SIGTERM ends the run after the current turn of the loop, with a point to resume from; then
        it acts as it would have.
        """
        parts, self._record = self._parts, RunRecord(self._cfg.exp_name)
        with StopSignal() as signals:
            self._begin()
            self._connect()
            self._console.start(self._progress())
            stop = self._loop(signals)
            self._console.update(self._progress())
            if self._checkpointer is not None:
                self._checkpointer.save(self._record.state_dict())
            self._lock_step.leave()
            if signals.received is not None:
                logger.info("interrupted at %s: saved, go on with  ding --resume %s", self._place(), self._cfg.exp_name)
                signals.leave()
        parts.learner.call_hook("after_run")
        if self._evaluate is None:
            return None
        final = self._evaluate.final()
        return self._record.conclude(
            final.returns,
            eval_s=final.duration_s,
            stop=stop,
            env_step=parts.collector.envstep,
            train_iter=parts.learner.train_iter,
        )

    def _begin(self) -> None:
        """Bring the parts to where the run goes on from: its beginning, or a saved point."""
        parts, policy = self._parts, self._cfg.policy
        if self._saved is not None:
            assert self._checkpointer is not None, "the constructor saw to it"
            state = self._checkpointer.restore(self._saved)
            best = math.nan if parts.evaluator is None else parts.evaluator.best_return
            self._record.load_state_dict(state, best=best)
            self._lock_step.begin(goes_on=True)
            logger.info("resumed %s at %s", self._cfg.exp_name, self._place())
            return
        parts.learner.call_hook("before_run")
        self._lock_step.begin(goes_on=False)
        if parts.league is not None:
            parts.league.begin()
        if policy.random_collect_size > 0:
            random_collect(
                policy, parts.policy, parts.collector, parts.collector_env, parts.commander, parts.replay_buffer
            )
            self._lock_step.count_steps()

    def _connect(self) -> None:
        """Make the roles, and the channels between them."""
        parts, policy = self._parts, self._cfg.policy
        weights = LoadedWeights(parts.policy)
        self._rows = rows = LocalRows(
            self._lock_step.store(BatchOnce() if parts.buffer is None else parts.buffer),
            UpdateRatio.per_segment(1 if parts.buffer is None else policy.learn.update_per_collect),
            segment_rows=policy.collect.get("n_sample") or policy.collect.get("n_episode") or 1,
            batch_size=self._batch_size,
            newest=lambda: Version(0, parts.learner.train_iter),
            env_step=parts.collector.envstep,
        )
        self._collect = CollectRole(
            parts.collector, weights, sink=self._lock_step.sink(rows), settings=lambda _: parts.commander.step()
        )
        with_priority = parts.buffer is not None and bool(policy.priority)
        self._train = TrainRole(parts.learner, rows, with_priority=with_priority)
        self._evaluate = self._evaluate_role(weights)

    def _evaluate_role(self, weights: LoadedWeights) -> EvaluateRole | None:
        parts, evaluator, env = self._parts, self._parts.evaluator, self._parts.evaluator_env
        if evaluator is None or env is None:
            return None

        def share() -> None:
            if parts.statistics is None:
                share_statistics(parts.collector_env, env)
            else:
                parts.statistics.evaluate_with(env)

        return EvaluateRole(evaluator, weights, before=share)

    def _loop(self, signals: StopSignal) -> bool:
        """Return whether an evaluation reached `stop_value`."""
        parts, limits, console = self._parts, self._limits, self._console
        while parts.collector.envstep < limits.max_env_step and parts.learner.train_iter < limits.max_train_iter:
            turn = self._lock_step.agree(self._due(signals))
            if turn.signal:
                signals.received = turn.signal  # may be another learner's
                return False
            if turn.saves and self._checkpointer is not None:
                self._checkpointer.save(self._record.state_dict())
            if turn.evaluates and self._lock_step.evaluate(None if self._evaluate is None else self._evaluate_now):
                return True
            self._collect.collect(self._rows.order(timeout_s=0.0))
            self._train.train_ready()
            if parts.league is not None:
                parts.league.turn(train_iter=parts.learner.train_iter, env_step=parts.collector.envstep)
            if console.is_due:
                console.update(self._progress())
        return False

    def _due(self, signals: StopSignal) -> Turn:
        """Return what is due before the next rows are collected; of several learners, the first decides for all."""
        if signals.received is not None or self._evaluate is None:
            return Turn(signals.received or 0)
        saves = self._checkpointer is not None and self._checkpointer.is_due()
        return Turn(0, saves, self._evaluate.is_due(self._parts.learner.train_iter))

    def _evaluate_now(self) -> bool:
        """Evaluate, keep the model if it is the best, and return whether it is good enough."""
        parts, env_step = self._parts, self._parts.collector.envstep
        assert self._evaluate is not None, "only a learner that evaluates is asked to"
        found = self._evaluate.evaluate(
            parts.learner.train_iter, env_step, save_checkpoint=parts.learner.save_checkpoint
        )
        self._record.note_evaluation(
            found.returns,
            best=found.best_return,
            env_step=env_step,
            duration_s=found.duration_s,
            console=self._console,
        )
        return found.stop

    def _progress(self) -> Progress:
        parts = self._parts
        monitor = parts.learner.monitor
        return self._record.progress(
            env_step=parts.collector.envstep,
            train_iter=parts.learner.train_iter,
            mean_return=parts.collector.mean_return,
            mean_length=parts.collector.mean_length,
            setting=self._collect.setting,
            learn=None if monitor is None else monitor.averages(),
        )

    def _place(self) -> str:
        return f"env step {self._parts.collector.envstep:,}, iteration {self._parts.learner.train_iter:,}"


def random_collect(
    policy_cfg: Any,
    policy: Policy,
    collector: SampleSerialCollector,
    collector_env: EnvManager,
    commander: Any,  # unused: random actions need no settings; a place of DI-engine's signature
    replay_buffer: IBuffer,
    postprocess_data_fn: Callable[[Any], Any] | None = None,
) -> None:
    """Fill the buffer with `policy_cfg.random_collect_size` samples made by random actions."""
    mode = adapt_collect_mode(policy.collect_mode)
    collector.reset_policy(random_collect_mode(mode, collector_env.action_space))
    for samples in _random_samples(collector, policy_cfg.random_collect_size, num_lanes=collector_env.num_lanes):
        rows = samples if postprocess_data_fn is None else postprocess_data_fn(samples)
        replay_buffer.push(rows, cur_collector_envstep=collector.envstep)
    collector.reset_policy(mode)


def _random_samples(collector: Any, num_samples: int, *, num_lanes: int) -> Iterator[Any]:
    """Yield at least `num_samples` rows: exactly as many, or those of whole episodes where these are collected."""
    if not isinstance(collector, EpisodeSerialCollector):
        yield collector.collect(n_sample=num_samples, random_collect=True, record_random_collect=False)
        return
    while num_samples > 0:
        samples = collector.collect(n_episode=num_lanes)
        num_samples -= len(samples)
        yield samples
