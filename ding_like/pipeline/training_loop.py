"""Training loop, which steps a runner (collect, update), evaluates and saves, and the runner of serial runs."""

from __future__ import annotations

import logging
import math
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from ding_like.comm.channels import Batch
from ding_like.config import FrozenConfig
from ding_like.errors import CheckpointError, CommError, ConfigError
from ding_like.pipeline.collect import collect_at_random
from ding_like.pipeline.components import FINAL_NUMBER, Components, final_episodes
from ding_like.pipeline.learners.synced import Due, SyncedLearners
from ding_like.pipeline.process import StopSignal
from ding_like.pipeline.record import (
    Checkpointer,
    Origin,
    RunRecord,
    RunResult,
    forget_earlier_best,
    put_best_back,
    set_best_aside,
)
from ding_like.pipeline.rows import update_priorities, warn_of_few_rows
from ding_like.pipeline.scheme_parts import LearnerSide
from ding_like.pipeline.statistics import share_statistics
from ding_like.report.details import BufferUse, Details
from ding_like.report.run_console import Limits, Progress, RunConsole
from ding_like.types import EnvManager, Setting, State
from ding_like.utils.checkpoint import Saved
from ding_like.utils.files import is_full, when_there_is_room
from ding_like.worker import InteractionSerialEvaluator
from ding_like.worker.evaluator import EvaluationStoppedError

logger = logging.getLogger(__name__)


class RunnerLostError(CommError):
    """Loss of the workers that a runner needs; `Runner.rescue` returns whether its parts can be saved."""


class Runner(Protocol):
    """Steps of a run, called by `TrainingLoop`: one step is one iteration (collect, update).

    What is implemented here is right for a runner all of whose parts are in this process.
    """

    @property
    def setting(self) -> Setting:
        """Setting of the collectors, as the commander set it last."""

    def start(self) -> None:
        """Begin a new run: collect the rows of random actions."""

    def step(self) -> None:
        """Run one iteration: collect and update. Raises RunnerLostError where the workers are lost."""

    def flush(self) -> None:
        """Wait for what is under way, so that the parts can be saved or evaluated: nothing is between two steps."""
        return None

    def rescue(self) -> bool:
        """Finish after RunnerLostError with the remaining workers; return whether the parts can be saved."""
        return True

    def workers(self) -> Mapping[str, str]:
        """Return the status of the run's workers, for its panel."""
        return {}

    def details(self) -> Details:
        """Return the processes of the workers, their failures, and the rows that were lost; any thread may call it."""
        return Details()

    def state_dict(self) -> State:
        """Return what a resumed run needs beside the parts; empty where it is nothing."""

    def load_state_dict(self, state: State) -> None:
        """Resume from what `state_dict` returned, in place of `start`. Raises RunnerLostError as `step` does."""

    def close(self) -> None:
        """End what was started, within 10 s; may be called again."""
        return None


class RemoteRunner(Runner):
    """Runner whose rows remote collectors bring to the learner's side.

    `random_rows` are those of random actions that are still to be collected.
    """

    def __init__(self, side: LearnerSide, is_leaving: Callable[[], bool]) -> None:
        self._side, self._receiver, self._is_leaving = side, side.receiver, is_leaving
        self.random_rows = side.random_rows

    @property
    def setting(self) -> Setting:
        """Setting that collectors were sent last."""
        return self._receiver.report.setting

    def state_dict(self) -> State:
        """Return how much was collected and how many updates were made of it."""
        return {"rows": self._side.rows_state(), "random_rows": max(0, self.random_rows)}

    def load_state_dict(self, state: State) -> None:
        """Resume from what `state_dict` returned, with the rows of random actions that were not collected by then."""
        if state:
            self._side.rows.load_state_dict(state["rows"])
        self.random_rows = state.get("random_rows", 0)
        self.start()

    @contextmanager
    def _or_lost(self) -> Iterator[None]:
        """Raise RunnerLostError in place of an error of the channels to the workers."""
        try:
            yield
        except RunnerLostError:
            raise
        except CommError as error:
            raise RunnerLostError(self._cause_of(error)) from error

    def _cause_of(self, error: CommError) -> str:
        return str(error)


MakeRunner = Callable[[Callable[[], bool]], Runner]  # (is_leaving) -> runner, once its parts have been restored


@dataclass(eq=False)
class SerialRunner(Runner):
    """Runner that collects and trains in this process; several learners each do so with their share.

    With a buffer `update_per_collect` updates follow each segment of rows, fewer while it holds too little; without
    one, each batch is learned from once. Collector and learner share the policy. Once `is_leaving` an iteration ends
    after the update under way; the updates that are still due are saved with the run, and made first when it resumes.
    """

    cfg: FrozenConfig
    parts: Components
    peers: SyncedLearners | None
    batch_size: int
    is_leaving: Callable[[], bool]
    _setting: Setting = field(default_factory=dict)
    _rows: Batch | None = None  # that were collected last, on-policy
    _updates_due: int = 0
    _is_broken_off: bool = False  # the last iteration

    @property
    def setting(self) -> Setting:
        """Setting of the collector, as the commander set it last."""
        return self._setting

    def start(self) -> None:
        """Choose a league's first opponent, and fill the buffer with rows of random actions."""
        parts = self.parts
        if parts.league is not None:
            parts.league.begin()
        if self.cfg.policy.random_collect_size > 0:
            collect_at_random(self.cfg, parts)
            if self.peers is not None:
                self.peers.count_steps()

    def step(self) -> None:
        """Collect a segment, and make the updates that follow it."""
        parts, collect = self.parts, self.cfg.policy.collect
        collector, self._setting = parts.own_collector, parts.commander.step()
        rows = collector.collect_rows(
            collect.get("n_sample") or collect.get("n_episode") or 1,
            train_iter=parts.learner.train_iter,
            policy_kwargs=self._setting,
        )
        if self.peers is not None:
            self.peers.count_steps()
            self.peers.merge_statistics()
        if parts.buffer is None:
            self._rows, self._updates_due = rows, 1
        else:
            parts.buffer.push(rows, cur_collector_envstep=collector.envstep)
            self._updates_due = self.cfg.policy.learn.update_per_collect
        self._learn()

    def _learn(self) -> None:
        parts, learner, buffer = self.parts, self.parts.learner, self.parts.buffer
        self._is_broken_off = False
        while self._updates_due and not self._is_broken_off:
            batch: Batch | None
            if buffer is None:
                batch, self._rows = self._rows, None
            else:
                batch = buffer.sample(self.batch_size, learner.train_iter)
                if batch is None:
                    warn_of_few_rows(self.batch_size)
            if self.peers is not None:
                batch = self.peers.share_batch(batch)
            if batch is None:
                break  # the store has too few rows: these updates are not made up later
            learner.train(batch, parts.collector.envstep)
            if buffer is not None and self.cfg.policy.priority:
                update_priorities(buffer, batch, learner.priority_info.get("priority"))
            self._updates_due -= 1
            self._is_broken_off = self.is_leaving()
        if parts.league is not None and not self._is_broken_off:
            parts.league.turn(train_iter=learner.train_iter, env_step=parts.collector.envstep)

    def details(self) -> Details:
        """Return the processes of the other learners, where there are any."""
        return Details() if self.peers is None else Details(processes=self.peers.processes())

    def state_dict(self) -> State:
        """Return the updates that are due where the last iteration was broken off, else nothing."""
        return {"updates_due": self._updates_due} if self._is_broken_off else {}

    def load_state_dict(self, state: State) -> None:
        """Finish the iteration that was broken off."""
        if state:
            self._updates_due = state["updates_due"]
            self._learn()


@dataclass(eq=False)
class TrainingLoop:
    """Loop that steps a runner until a limit is reached or an evaluation reaches `stop_value`.

    With a limit of time, which counts from the first step on, there is no evaluation before it is over.
    `checkpointer` saves points to resume from between two steps; with `saved` the run resumes from one. With
    `peers` this is the loop of one of several learners, each with its share of the config: all of them take the same
    steps, and the first alone evaluates and reports. `make_runner(is_leaving)` returns the runner, by default a
    SerialRunner. `on_begin` is called once the first step is done.
    """

    cfg: FrozenConfig
    parts: Components
    limits: Limits
    console: RunConsole
    checkpointer: Checkpointer | None = None
    saved: Saved | None = None
    peers: SyncedLearners | None = None
    batch_size: int | None = None  # rows drawn for an update; None: the config's
    make_runner: MakeRunner | None = None
    origin: Origin | None = None
    on_begin: Callable[[], None] | None = None
    training_s: float = 0.0  # from the first turn on, known when it has ended
    _phase_now: str = ""  # what is done beside taking turns
    _end_s: float = math.inf  # by the monotonic clock; known when the first turn begins

    def __post_init__(self) -> None:
        if self.saved is not None and self.checkpointer is None:
            raise ConfigError("a run that goes on from a saved point needs the checkpointer that knows its parts.")

    def run(self) -> RunResult | None:
        """Train to the end, evaluate the last model afresh, and write `result.json`; None where another learner does.

        The first SIGINT or SIGTERM ends the run after the update under way, with a point to resume from; then it acts
        as it would have.
        """
        parts, self._record = self.parts, RunRecord(self.cfg.exp_name, origin=self.origin)
        with StopSignal(self._say_stopping) as signals, ExitStack() as opened:
            self._signals = signals
            if parts.evaluator is not None:
                parts.evaluator.is_leaving = lambda: signals.received is not None
            with self._phase("starting" if self.saved is None else "loading the saved point"):
                state = self._begin(opened, lambda: signals.received is not None or self._is_out_of_time)
            began_s = time.monotonic()
            self._end_s = began_s + self.limits.max_duration_s
            try:
                with self._phase(self._first_phase):
                    self._start_runner(state)
                self.console.start(self._progress())
                stop = self._loop(signals)
                self._runner.flush()
                self.training_s = time.monotonic() - began_s
            except RunnerLostError as error:
                raise RunnerLostError(f"{error} The run ended {self._rescued()}") from error
            self._save()
            if self.peers is not None:
                self.peers.leave()
            if signals.received is not None:
                self.console.update(self._progress())
                self.console.outcome = f"interrupted {self._saved_at()}"
                logger.info("%s", self.console.outcome)
                signals.leave()
        parts.learner.call_hook("after_run")
        return None if parts.evaluator is None else self._conclude(parts.evaluator, stop=stop)

    def _conclude(self, evaluator: InteractionSerialEvaluator, *, stop: bool) -> RunResult:
        """Evaluate the last model afresh, keep it if it is the best, and write the result."""
        parts, began_s = self.parts, time.perf_counter()
        train_iter, env_step = parts.learner.train_iter, parts.collector.envstep

        def save(name: str) -> None:
            set_best_aside(self.cfg.exp_name)
            parts.learner.save_checkpoint(name)

        with self.console.phase("evaluating the last model"):
            self._share_statistics()
            final = evaluator.eval_last(
                final_episodes(self._eval_env), number=FINAL_NUMBER, train_iter=train_iter, envstep=env_step,
                save_ckpt_fn=save,
            )  # fmt: skip
        self._note(evaluator.best_return, final.returns, final.metrics, began_s)
        self.console.outcome = self.limits.describe_end(stop=stop, env_step=env_step, train_iter=train_iter)
        self.console.update(self._progress())
        result = {"stop": stop, "env_step": env_step, "train_iter": train_iter, "eval_metrics": final.metrics}
        return when_there_is_room(lambda: self._record.conclude(final.returns, **result), report=logger.warning)

    def _begin(self, opened: ExitStack, is_leaving: Callable[[], bool]) -> State | None:
        """Bring the parts to where the run goes on from, and make the runner; return a saved point's state, if any."""
        parts, state = self.parts, None
        if self.saved is not None:
            assert self.checkpointer is not None, "the constructor saw to it"
            state = self.checkpointer.restore(self.saved)
            best = math.nan if parts.evaluator is None else parts.evaluator.best_return
            self._record.load_state_dict(state, best=best)
            put_best_back(self.cfg.exp_name)
        else:
            if parts.evaluator is not None:
                forget_earlier_best(self.cfg.exp_name)
            parts.learner.call_hook("before_run")
        if self.peers is not None:
            self.peers.begin(resumes=state is not None)
        self._runner = (self.make_runner or self._serial_runner)(is_leaving)
        opened.callback(self._runner.close)
        opened.callback(setattr, self.console, "is_ending", True)  # before it is closed
        self.console.details, self.console.resume_command = self._details, self._resume_command
        if self.checkpointer is not None:
            self.console.save_asked = threading.Event()
        return state

    def _details(self) -> Details:
        """Return what the runner knows beside its progress, and what the buffer holds; any thread may call it."""
        found, buffer = self._runner.details(), self.parts.buffer
        if buffer is None:
            return found
        capacity = int(self.cfg.policy.other.replay_buffer.replay_buffer_size)
        return replace(found, buffer=BufferUse(buffer.count(), capacity, buffer.num_bytes))

    @property
    def _first_phase(self) -> str:
        if self.saved is not None:
            return "finishing the iteration of the saved point"
        size = self.cfg.policy.random_collect_size
        return f"collecting {size:,} samples by random actions" if size else "starting"

    def _start_runner(self, state: State | None) -> None:
        if state is None:
            self._runner.start()
        else:
            logger.info("resumed %s at %s", self.cfg.exp_name, self._place())
            self._runner.load_state_dict(state.get("turns", {}))

    def _serial_runner(self, is_leaving: Callable[[], bool]) -> Runner:
        whole = self.parts.share.num_learners > 1  # several learners agree to leave between two steps only
        batch_size = self.cfg.policy.learn.batch_size if self.batch_size is None else self.batch_size
        return SerialRunner(self.cfg, self.parts, self.peers, batch_size, (lambda: False) if whole else is_leaving)

    @contextmanager
    def _phase(self, what: str) -> Iterator[None]:
        self._phase_now = what
        with self.console.phase(what):
            try:
                yield
            finally:
                self._phase_now = ""

    def _say_stopping(self) -> None:
        turn = "finishing this iteration" if self.parts.share.num_learners > 1 else "collecting or making an update"
        self.console.event(
            f"stopping: still {self._phase_now or turn}, then saving; a second Ctrl-C or signal ends the run at once, "
            "without saving"
        )

    def _save(self) -> None:
        """Save the run's last point to resume from; a full disk is waited for, until a signal says to leave."""
        before, pause = self._signals.received, threading.Event()

        def wait(seconds: float) -> bool:
            return pause.wait(seconds) or self._signals.received != before

        try:
            when_there_is_room(self._save_point, report=logger.warning, wait=wait)
        except OSError as error:
            if not is_full(error):
                raise
            raise CheckpointError(
                f"the run's last point, of {self._place()}, is not saved: the disk stayed full ({error}). Make room; "
                f"from an earlier point, if there is one, it goes on with  {self._resume_command}"
            ) from error

    def _save_between(self) -> None:
        """Save a point to resume from; on a full disk the next one is tried when it is due."""
        try:
            self._save_point()
        except OSError as error:
            if not is_full(error):
                raise
            where = self._place()
            logger.warning("the disk is full (%s): the point of %s is not saved, earlier ones stay", error, where)

    def _save_point(self) -> None:
        if self.checkpointer is not None:
            self.checkpointer.save({**self._record.state_dict(), "turns": self._runner.state_dict()})
            self.console.saved_at = self._place()

    def _rescued(self) -> str:
        """Save a point where that can still be done, and say from where the run goes on."""
        if self._runner.rescue():
            self._save()
            return self._saved_at()
        newest = None if self.checkpointer is None else self.checkpointer.newest_step()
        torn = f"at {self._place()}, which is not saved: what was learned last is lost with the workers that learned it"
        if newest is None:
            return f"{torn}, and no point was saved before."
        again = f"go on from env step {newest:,}, saved before, with  {self._resume_command}"
        return f"{torn}; {again}"

    @property
    def _eval_env(self) -> EnvManager:
        assert self.parts.evaluator_env is not None, "the first learner evaluates, and has envs for it"
        return self.parts.evaluator_env

    def _share_statistics(self) -> None:
        """Have the envs of evaluations normalise by what the collector's wrappers have learned."""
        statistics = self.parts.statistics
        if statistics is None:
            share_statistics(self.parts.own_env, self._eval_env)
        else:
            statistics.evaluate_with(self._eval_env)

    def _loop(self, signals: StopSignal) -> bool:
        """Return whether an evaluation reached `stop_value`."""
        parts, limits, console = self.parts, self.limits, self.console
        while parts.collector.envstep < limits.max_env_step and parts.learner.train_iter < limits.max_train_iter:
            if self._is_out_of_time:
                return False
            due = self._due(signals)
            if self.peers is not None:
                due = self.peers.agree(due)
            if due.signal:
                signals.received = due.signal  # may be another learner's
                return False
            if due.saves or due.evaluates:
                self._runner.flush()
            if due.saves:
                self._save_between()
            if due.evaluates and self._evaluate():
                return True
            if signals.received is not None and parts.share.num_learners == 1:
                continue  # an evaluation was broken off; several learners agree after the next step
            self._runner.step()
            if self.on_begin is not None:
                self.on_begin()
                self.on_begin = None
            if console.is_due:
                console.show(self._progress())
        return False

    def _due(self, signals: StopSignal) -> Due:
        """Return what is due before the next rows are collected; of several learners, the first decides for all."""
        evaluator = self.parts.evaluator
        if signals.received is not None or evaluator is None:
            return Due(signals.received or 0)
        is_asked = self.console.take_save_request()
        saves = self.checkpointer is not None and (self.checkpointer.is_due() or is_asked)
        is_timed = self.limits.max_duration_s < math.inf
        return Due(0, saves, not is_timed and evaluator.should_eval(self.parts.learner.train_iter))

    @property
    def _is_out_of_time(self) -> bool:
        return time.monotonic() >= self._end_s

    def _evaluate(self) -> bool:
        """Evaluate, keep the model if it is the best, and return whether it is good enough."""
        if self.peers is None:
            return self._evaluate_here()
        return self.peers.evaluate(None if self.parts.evaluator is None else self._evaluate_here)

    def _evaluate_here(self) -> bool:
        parts, evaluator, began_s = self.parts, self.parts.evaluator, time.perf_counter()
        assert evaluator is not None, "the first learner evaluates"
        try:
            with self._phase("evaluating"):
                self._share_statistics()
                stop, info = evaluator.eval(
                    parts.learner.save_checkpoint, parts.learner.train_iter, parts.collector.envstep
                )
        except EvaluationStoppedError:  # it is due when the run resumes
            return False
        self._note(evaluator.best_return, info["eval_episode_return"], info.get("metrics", {}), began_s)
        return stop

    def _note(self, best: float, returns: Sequence[float], metrics: Mapping[str, float], began_s: float) -> None:
        took_s, env_step = time.perf_counter() - began_s, self.parts.collector.envstep
        train_iter = self.parts.learner.train_iter
        self._record.note_evaluation(returns, best, env_step, took_s, self.console, metrics, train_iter)

    def _progress(self) -> Progress:
        parts = self.parts
        monitor = parts.learner.monitor
        return self._record.progress(
            env_step=parts.collector.envstep,
            train_iter=parts.learner.train_iter,
            mean_return=parts.collector.mean_return,
            mean_length=parts.collector.mean_length,
            setting=self._runner.setting,
            learn=None if monitor is None else monitor.averages(),
            workers=self._runner.workers(),
        )

    @property
    def _resume_command(self) -> str:
        return shlex.join(["ding", "--resume", self.cfg.exp_name])

    def _saved_at(self) -> str:
        return f"at {self._place()}: saved, go on with  {self._resume_command}"

    def _place(self) -> str:
        return f"env step {self.parts.collector.envstep:,}, iteration {self.parts.learner.train_iter:,}"
