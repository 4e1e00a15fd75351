"""Run everything in one process: collect, push, sample, train, evaluate, in turn."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ding_like.data.rows import adapt_collect_mode
from ding_like.errors import ConfigError
from ding_like.pipeline.build import SerialParts
from ding_like.pipeline.checkpoint import Checkpointer
from ding_like.pipeline.interrupt import StopSignal
from ding_like.pipeline.report.progress import Progress
from ding_like.pipeline.report.run_console import RunConsole
from ding_like.pipeline.report.text import measure
from ding_like.pipeline.statistics import share_statistics
from ding_like.policy import Policy
from ding_like.policy.random_policy import random_collect_mode
from ding_like.types import EnvManager, State
from ding_like.utils.files import atomic_write
from ding_like.utils.log import one_time_warning
from ding_like.utils.resume import Saved
from ding_like.worker import EpisodeSerialCollector, IBuffer, SampleSerialCollector

logger = logging.getLogger(__name__)

# Episodes of the evaluation that judges the last model.
_FINAL_EPISODES = 20
# The number of that evaluation: its episodes are none that a stop rule has seen.
_FINAL_NUMBER = -1


@dataclass(frozen=True)
class RunResult:
    """Describe a finished run; it is what `result.json` holds."""

    stop: bool  # whether an evaluation reached stop_value
    eval_value: float  # mean return of a fresh evaluation of the last model
    eval_value_raw: list[float]
    env_step: int
    train_iter: int
    duration_s: float  # the whole loop
    eval_duration_s: float  # of which evaluations
    finish_time: str


def learn_off_policy(cfg: Any, parts: SerialParts, batch: Any) -> None:
    """Store a batch and take `update_per_collect` updates, fewer while the buffer holds too little."""
    learn, buffer, learner = cfg.policy.learn, parts.replay_buffer, parts.learner
    buffer.push(batch, cur_collector_envstep=parts.collector.envstep)
    for _ in range(learn.update_per_collect):
        sample = buffer.sample(learn.batch_size, learner.train_iter)
        if sample is None:
            one_time_warning(
                f"the replay buffer holds {buffer.count()} rows, fewer than batch_size {learn.batch_size}: "
                "no update yet. policy.random_collect_size fills it first."
            )
            break
        learner.train(sample, parts.collector.envstep)
        if cfg.policy.priority:
            buffer.update(learner.priority_info)


def learn_on_policy(cfg: Any, parts: SerialParts, batch: Any) -> None:
    """Train on a batch at once; it is used no second time."""
    parts.learner.train(batch, parts.collector.envstep)


# (config, parts, what was collected): one turn of learning.
LearnFrom = Callable[[Any, SerialParts, Any], None]


class SerialRun:
    """Loop over the parts until a limit is reached or an evaluation reaches `stop_value`.

    `learn_from` says what to do with what was collected: `learn_off_policy` (the default) or `learn_on_policy`.
    `checkpointer` saves points to resume from between two turns of the loop; with `saved` the run goes on from one.
    """

    def __init__(
        self,
        cfg: Any,
        parts: SerialParts,
        *,
        max_train_iter: float,
        max_env_step: float,
        console: RunConsole,
        checkpointer: Checkpointer | None = None,
        saved: Saved | None = None,
        learn_from: LearnFrom | None = None,
    ) -> None:
        if saved is not None and checkpointer is None:
            raise ConfigError("a run that goes on from a saved point needs the checkpointer that knows its parts.")
        self._cfg = cfg
        self._parts = parts
        self._max_train_iter = max_train_iter
        self._max_env_step = max_env_step
        self._checkpointer = checkpointer
        self._saved = saved
        self._learn_from = learn_from or learn_off_policy
        self._console = console
        self._setting: Mapping[str, Any] = {}  # what the commander said last
        self._eval_returns: list[float] = []  # of the last evaluation
        self._eval_duration_s = 0.0
        self._earlier_s = 0.0  # what the run took before it was resumed

    def run(self) -> RunResult:
        """Train to the end, evaluate the last model afresh, and write `result.json`.

        The first SIGINT or SIGTERM ends the run after the current turn of the loop, with a point to resume from; then
        it acts as it would have.
        """
        self._started_s = time.perf_counter()
        parts = self._parts
        with StopSignal() as signals:
            if self._saved is not None:
                self._resume(self._saved)
            else:
                parts.learner.call_hook("before_run")
                if parts.league is not None:
                    parts.league.begin()
                if self._cfg.policy.random_collect_size > 0:
                    random_collect(
                        self._cfg.policy,
                        parts.policy,
                        parts.collector,
                        parts.collector_env,
                        parts.commander,
                        parts.replay_buffer,
                    )
            self._console.start(self._progress())
            stop = self._loop(signals)
            self._console.update(self._progress())
            if self._checkpointer is not None:
                self._checkpointer.save(self._state())
            if signals.received is not None:
                self._say_interrupted()
                signals.leave()
        parts.learner.call_hook("after_run")
        result = self._judge(stop=stop)
        self._write(result)
        return result

    def _loop(self, signals: StopSignal) -> bool:
        """Return whether an evaluation reached `stop_value`."""
        parts = self._parts
        while not self._is_at_limit() and signals.received is None:
            if self._checkpointer is not None:
                self._checkpointer.save_if_due(self._state)
            self._setting = parts.commander.step()
            if parts.evaluator.should_eval(parts.learner.train_iter) and self._evaluate():
                return True
            batch = parts.collector.collect(train_iter=parts.learner.train_iter, policy_kwargs=self._setting)
            self._learn_from(self._cfg, parts, batch)
            if parts.league is not None:
                parts.league.turn(train_iter=parts.learner.train_iter, env_step=parts.collector.envstep)
            if self._console.is_due:
                self._console.update(self._progress())
        return False

    def _state(self) -> State:
        return {
            "eval_returns": self._eval_returns,
            "eval_duration_s": self._eval_duration_s,
            "duration_s": self._duration_s(),
        }

    def _resume(self, saved: Saved) -> None:
        assert self._checkpointer is not None, "the constructor saw to it"
        state = self._checkpointer.restore(saved)
        self._eval_returns = state["eval_returns"]
        self._eval_duration_s = state["eval_duration_s"]
        self._earlier_s = state["duration_s"]
        logger.info(
            "resumed %s at env step %s, iteration %s",
            self._cfg.exp_name,
            f"{self._parts.collector.envstep:,}",
            f"{self._parts.learner.train_iter:,}",
        )

    def _say_interrupted(self) -> None:
        logger.info(
            "interrupted at env step %s: saved, go on with  ding --resume %s",
            f"{self._parts.collector.envstep:,}",
            self._cfg.exp_name,
        )

    def _duration_s(self) -> float:
        return self._earlier_s + time.perf_counter() - self._started_s

    def _is_at_limit(self) -> bool:
        return (
            self._parts.collector.envstep >= self._max_env_step
            or self._parts.learner.train_iter >= self._max_train_iter
        )

    def _evaluate(self) -> bool:
        parts = self._parts
        started, best = time.perf_counter(), parts.evaluator.best_return
        share_statistics(parts.collector_env, parts.evaluator_env)
        stop, info = parts.evaluator.eval(
            parts.learner.save_checkpoint, parts.learner.train_iter, parts.collector.envstep
        )
        self._eval_duration_s += time.perf_counter() - started
        self._eval_returns = info["eval_episode_return"]
        if parts.evaluator.best_return > best > -math.inf:
            best_eval = measure(parts.evaluator.best_return)
            self._console.event(
                f"env step {parts.collector.envstep:,}  eval {best_eval} is the best so far -> ckpt/ckpt_best.pth.tar"
            )
        return stop

    def _progress(self) -> Progress:
        parts = self._parts
        monitor = parts.learner.monitor
        return Progress(
            env_step=parts.collector.envstep,
            train_iter=parts.learner.train_iter,
            duration_s=self._duration_s(),
            eval_duration_s=self._eval_duration_s,
            mean_return=parts.collector.mean_return,
            mean_length=parts.collector.mean_length,
            eval_returns=self._eval_returns,
            best_eval=parts.evaluator.best_return if self._eval_returns else float("nan"),
            setting=self._setting,
            learn={} if monitor is None else monitor.averages(),
        )

    def _judge(self, *, stop: bool) -> RunResult:
        parts = self._parts
        episodes = max(_FINAL_EPISODES, parts.evaluator_env.num_lanes)
        share_statistics(parts.collector_env, parts.evaluator_env)
        final = parts.evaluator.play(episodes, number=_FINAL_NUMBER)
        self._eval_duration_s += final.duration_s
        return RunResult(
            stop=stop,
            eval_value=final.mean,
            eval_value_raw=final.returns,
            env_step=parts.collector.envstep,
            train_iter=parts.learner.train_iter,
            duration_s=self._duration_s(),
            eval_duration_s=self._eval_duration_s,
            finish_time=time.strftime("%Y-%m-%d %H:%M:%S"),
        )

    def _write(self, result: RunResult) -> None:
        path = Path(self._cfg.exp_name) / "result.json"
        with atomic_write(path) as file:
            file.write(json.dumps(asdict(result), indent=2).encode())


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
