"""Path of every mode whose training loop is in this process: plan, dry run, start, resume."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from ding_like.agent.description import write_description
from ding_like.agent.video import write_pictures
from ding_like.comm.learner_group import LearnerGroup
from ding_like.comm.workers.failures import place_raised, worker_of
from ding_like.entry.plan import Plan, ReadSettings, RunArguments, Settings, SystemInput, make_plan
from ding_like.errors import DingError, TrainingError
from ding_like.pipeline.checkpoint import Checkpointer, resume_store
from ding_like.pipeline.components import Components
from ding_like.pipeline.learners.synced import newest_of_all
from ding_like.pipeline.process import training_process
from ding_like.pipeline.record import RunResult, origin_of
from ding_like.pipeline.training_loop import MakeRunner, TrainingLoop
from ding_like.policy import Policy
from ding_like.report.run_console import Limits, RunConsole
from ding_like.report.summary import closing_lines, opening_lines
from ding_like.types import Section
from ding_like.utils.run_folder import RunFolder
from ding_like.utils.trackers import tracked

logger = logging.getLogger(__name__)

Mode = TypeVar("Mode", bound="TrainingMode[Any]")


class Trained(NamedTuple):
    """Outcome of a training; `seconds` are those from the first iteration to the last."""

    policy: Policy
    exp_name: str
    result: RunResult | None  # None in a process that does not evaluate
    seconds: float


class TrainingMode(Generic[Settings]):
    """Way to run a planned training loop in this process; a subclass adds its workers."""

    read: ClassVar[ReadSettings[Any] | None] = None  # checks the mode's `system_config`, if it has one
    group: LearnerGroup | None = None  # learners that run the loop together, where there are several

    def __init__(self, plan: Plan[Settings]) -> None:
        self.plan = plan

    @classmethod
    def of(cls: type[Mode], input_cfg: SystemInput | None, arguments: RunArguments, **given: Any) -> Mode:
        """Return the planned run of a config, or without one of the run in `exp_name`; nothing is written or started.

        `given` are further arguments of `make_plan`, and options of the mode. Raises ConfigError with every fault.
        """
        return cls(make_plan(input_cfg, arguments, cls.read, **given))

    def lines(self) -> list[str]:
        """Return lines for the console that describe the workers."""
        return []

    def dry_run(self) -> tuple[list[str], bool]:
        """Return (lines that describe what would run where, whether it fits); nothing is started."""
        return [self.plan.line(), *self.lines(), f"until       {self._limits().describe()}"], True

    def _limits(self, max_duration_s: float = math.inf) -> Limits:
        arguments = self.plan.arguments
        stop_value = self.plan.cfg.env.stop_value
        return Limits(arguments.max_env_step, arguments.max_train_iter, stop_value, max_duration_s)

    @contextmanager
    def opened(self, folder: RunFolder) -> Iterator[None]:
        """Claim the run's folder, and start what the workers need until the block ends."""
        self.plan = self.plan.claimed(folder)
        yield

    def build(self) -> Components:
        """Return the components of this process."""
        raise NotImplementedError

    def loop_settings(self, parts: Components) -> Section:
        """Return further arguments of the training loop."""
        return {"make_runner": self.make_runner(parts)}

    def make_runner(self, parts: Components) -> MakeRunner:
        """Return the factory of the runner."""
        raise NotImplementedError

    def start(self) -> Policy | None:
        """Train to the end, and return the policy."""
        return self.train().policy

    def train(self, *, max_duration_s: float = math.inf) -> Trained:
        """Train until a limit or `env.stop_value` is reached, and write the result."""
        with clear_errors(), RunFolder() as folder, self.opened(folder), training_process():
            plan, cfg, arguments = self.plan, self.plan.cfg, self.plan.arguments
            is_shown = self.group is None or self.group.rank == 0
            limits = self._limits(max_duration_s)
            console = RunConsole(cfg.exp_name, limits, is_shown=is_shown)
            with console, tracked(cfg, is_first=is_shown) as trackers:
                with console.phase("building envs and policy"):
                    parts = self.build()
                with closing(parts):
                    trackers.follow(parts.metrics)
                    self._introduce(console, parts, limits)
                    loop = self._make_loop(parts, limits=limits, console=console, on_begin=folder.keep)
                    result = loop.run()
                    if is_shown:
                        with console.phase("drawing the curve, filming the best model"):
                            write_pictures(cfg, parts.policy, seed=arguments.seed, env_setting=plan.env_setting)
                        console.close_summary(closing_lines(cfg.exp_name, mode=arguments.mode))
        return Trained(parts.policy, cfg.exp_name, result, loop.training_s)

    def _introduce(self, console: RunConsole, parts: Components, limits: Limits) -> None:
        """Show the opening lines, and write what the agent is; another learner than the first logs its share."""
        plan = self.plan
        if parts.share.rank:
            found = (*parts.share, os.getpid(), parts.own_env.num_lanes)
            logger.info("learner rank %d of %d, process %d: it collects in %d envs", *found)
            return
        write_description(plan.cfg, env_setting=plan.env_setting, has_own_model=plan.model is not None)
        assert parts.evaluator_env is not None, "the first learner evaluates"
        opening = opening_lines(
            plan.cfg,
            collector_env=parts.collector_env,
            evaluator_env=parts.evaluator_env,
            policy=parts.policy,
            limits=limits,
            overrides=plan.overrides,
            learners=self.lines(),
            env_fn=plan.env_fn,
        )
        console.print(opening)

    def _make_loop(
        self, parts: Components, *, limits: Limits, console: RunConsole, on_begin: Callable[[], None]
    ) -> TrainingLoop:
        plan, saved = self.plan, None
        settings = {"cfg": plan.cfg, **self.loop_settings(parts)}
        if plan.resumes:
            store = resume_store(plan.cfg.exp_name, rank=parts.share.rank)
            saved = store.load_newest() if self.group is None else newest_of_all(self.group, store)
        return TrainingLoop(
            parts=parts,
            limits=limits,
            console=console,
            checkpointer=Checkpointer(settings["cfg"], parts, arguments=plan.arguments._asdict()),
            saved=saved,
            origin=origin_of(plan.cfg, mode=plan.arguments.mode, source=plan.source, env_fn=plan.env_fn),
            on_begin=on_begin,
            **settings,
        )


@contextmanager
def clear_errors() -> Iterator[None]:
    """Add to an error of a worker where it was raised; an error of the worker's own code becomes a TrainingError."""
    try:
        yield
    except Exception as error:  # a worker's code may raise anything; it is raised again with its place
        where = worker_of(error)
        if where is None:
            raise
        is_ours = isinstance(error, DingError)
        text, kind = (str(error), type(error)) if is_ours else (f"{type(error).__name__}: {error}", TrainingError)
        raise kind(f"{text}\n  raised {where}, at {place_raised(error)}") from error
