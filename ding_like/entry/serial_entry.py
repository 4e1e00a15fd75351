"""Train from a config in one process, or in several learners that act as one.

python -m ding_like.entry.serial_entry STORE RANK RUN is a learner that the first one starts; RUN describes the run as
JSON.
"""

from __future__ import annotations

import json
import logging
import math
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ding_like.agent.description import write_description
from ding_like.agent.pictures import write_pictures
from ding_like.comm.learner_group import LearnerGroup
from ding_like.comm.workers.failures import place_raised, worker_of
from ding_like.config.override import check_overrides
from ding_like.entry.learners import is_first, joined, number_of_learners, opening_line, report_error
from ding_like.entry.plan import (
    NO_LIMIT,
    InputConfig,
    Plan,
    RunArguments,
    check_limits,
    check_mode,
    check_nstep,
    limited,
    load_config,
    load_overrides,
    load_saved,
    refuse_in_child,
)
from ding_like.envs import get_vec_env_setting
from ding_like.errors import CommError, ConfigError, DingError, TrainingError
from ding_like.pipeline.checkpoint import Checkpointer, resume_store
from ding_like.pipeline.components import Components, build_serial
from ding_like.pipeline.envs import EnvSetting, check_env_setting
from ding_like.pipeline.learners.shares import may_refuse, share_config, share_envs, share_of_batch
from ding_like.pipeline.learners.synced import SyncedLearners, join_policy, newest_of_all
from ding_like.pipeline.process import training_process
from ding_like.pipeline.record import RunResult, origin_of
from ding_like.pipeline.training_loop import MakeRunner, TrainingLoop
from ding_like.policy import Policy
from ding_like.policy.sharing import Share
from ding_like.report.progress import Limits
from ding_like.report.run_console import NoConsole, RunConsole
from ding_like.report.summary import closing_lines, opening_lines
from ding_like.utils.log import setup_console, shown_as_by_the_command
from ding_like.utils.processes import watch_parent
from ding_like.utils.run_folder import RunFolder
from ding_like.utils.trackers import tracked

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

_GONE = "has ended without a word: it was killed"


@shown_as_by_the_command()
def serial_pipeline(
    input_cfg: InputConfig,
    seed: int = 0,
    env_setting: EnvSetting | None = None,
    model: torch.nn.Module | None = None,
    max_train_iter: int = NO_LIMIT,
    max_env_step: int = NO_LIMIT,
    dynamic_seed: bool = True,
    *,
    overrides: Sequence[str] = (),
    exp_name: str | None = None,
    load_path: str | None = None,
    learners: int | None = None,
) -> Policy:
    """Train off-policy until a limit or `env.stop_value` is reached, and return the policy.

    `input_cfg` is a config file or (main_config, create_config). `env_setting` is (env_fn, collector env configs,
    evaluator env configs) in place of the config's env; `model` replaces the policy's. With `dynamic_seed=False` every
    episode of an env starts from the same seed. `overrides` are `section.key=value` strings; `load_path` is a
    checkpoint to start from. `learners` processes, of which this one is the first and starts the others, each run the
    loop with their share and learn as one; below torchrun they are its ranks. Raises ConfigError with every fault of
    the config at once.
    """
    arguments = RunArguments("serial", seed, max_train_iter, max_env_step, dynamic_seed, number_of_learners(learners))
    return _start(input_cfg, arguments, env_setting, model, overrides, exp_name, load_path)


@shown_as_by_the_command()
def serial_pipeline_onpolicy(
    input_cfg: InputConfig,
    seed: int = 0,
    env_setting: EnvSetting | None = None,
    model: torch.nn.Module | None = None,
    max_train_iter: int = NO_LIMIT,
    max_env_step: int = NO_LIMIT,
    dynamic_seed: bool = True,
    *,
    overrides: Sequence[str] = (),
    exp_name: str | None = None,
    load_path: str | None = None,
    learners: int | None = None,
) -> Policy:
    """Train on-policy: every batch is trained on once, by the policy that made it. Otherwise as `serial_pipeline`."""
    num_learners = number_of_learners(learners)
    arguments = RunArguments("serial_onpolicy", seed, max_train_iter, max_env_step, dynamic_seed, num_learners)
    return _start(input_cfg, arguments, env_setting, model, overrides, exp_name, load_path)


def _start(
    input_cfg: InputConfig,
    arguments: RunArguments,
    env_setting: EnvSetting | None,
    model: torch.nn.Module | None,
    overrides: Sequence[str],
    exp_name: str | None,
    load_path: str | None,
) -> Policy:
    """Check the input, make the run's folder, and train."""
    refuse_in_child()
    check_limits(max_env_step=arguments.max_env_step, max_train_iter=arguments.max_train_iter)
    check_overrides(overrides)
    check_env_setting(env_setting)
    overrides = [*overrides, *load_overrides(load_path)]
    with RunFolder() as folder:
        # Of the ranks of torchrun, the first one makes the folder and holds it for all.
        first: dict[str, Any] = {"folder": folder} if is_first() else {"save": False, "renew_dir": False}
        cfg = load_config(
            input_cfg, seed=arguments.seed, overrides=overrides, exp_name=exp_name, builds_model=model is None, **first
        )
        check_nstep(cfg, arguments.max_env_step)
        source = str(input_cfg) if isinstance(input_cfg, (str, Path)) else ""
        plan = Plan(cfg, arguments, None, source, overrides, env_setting=env_setting, model=model)
        return train_planned(plan, on_begin=folder.keep)


def resume_serial(
    exp_name: str,
    arguments: RunArguments,
    *,
    env_setting: EnvSetting | None = None,
    model: torch.nn.Module | None = None,
    learners: int | None = None,
) -> Policy:
    """Resume a run from its newest valid saved point, by the `arguments` saved with it; see `resume_pipeline`."""
    asked = number_of_learners(learners, default=arguments.num_learners)
    if asked != arguments.num_learners:
        had = "one learner" if arguments.num_learners == 1 else f"{arguments.num_learners} learners"
        raise ConfigError(
            f"{exp_name} is a run of {had}, each with envs and rows of its own: it goes on with as many, not with "
            f"{asked}."
        )
    cfg = load_saved(exp_name, seed=arguments.seed)
    return train_planned(Plan(cfg, arguments, None, resumes=True, env_setting=env_setting, model=model))


def train_planned(plan: Plan[None], *, on_begin: Callable[[], None] | None = None) -> Policy:
    """Train alone, or with other learners, which are started unless torchrun has started them; return the policy.

    The run's folder has been made. `on_begin` is called after the first iteration.
    """
    check_mode(plan.cfg, plan.arguments.mode)
    with joined(plan) as (own, group):
        return run_learner(own, group=group, on_begin=on_begin)


def run_learner(
    plan: Plan[None], *, group: LearnerGroup | None = None, on_begin: Callable[[], None] | None = None
) -> Policy:
    """Train in this process, which is one of the learners of `group`, or alone; return the policy."""
    cfg, env_setting = plan.cfg, plan.env_setting
    arguments = limited(cfg, plan.arguments)
    share = Share() if group is None else Share(group.rank, group.world_size)
    own: Any = cfg
    if share.num_learners > 1:
        own = share_config(cfg, share.num_learners)
        env_setting = share_envs(env_setting or get_vec_env_setting(cfg.env), share)
    limits = Limits(arguments.max_env_step, arguments.max_train_iter, cfg.env.stop_value)
    console = NoConsole() if share.rank else RunConsole(cfg.exp_name, limits)
    with training_process(), console, tracked(cfg, is_first=share.rank == 0) as trackers:
        with console.phase("building envs and policy"):
            parts = build_serial(
                own,
                seed=arguments.seed,
                env_setting=env_setting,
                model=plan.model,
                dynamic_seed=arguments.dynamic_seed,
                with_buffer=arguments.mode == "serial",
                share=share,
                make_reducer=None if group is None else partial(join_policy, group),
            )
        with closing(parts):
            trackers.follow(parts.metrics)
            if share.rank == 0:
                write_description(cfg, env_setting=env_setting, has_own_model=plan.model is not None)
                console.tell(_opening(plan, parts, limits))
            else:
                found = (*parts.share, os.getpid(), parts.own_env.num_lanes)
                logger.info("learner rank %d of %d, process %d: it collects in %d envs", *found)
            saved = None
            if plan.resumes:
                store = resume_store(cfg.exp_name, rank=share.rank)
                saved = store.load_newest() if group is None else newest_of_all(group, store)
            with _weights_kept(cfg.exp_name, parts):
                loop = TrainingLoop(
                    own,
                    parts,
                    limits=limits,
                    console=console,
                    checkpointer=Checkpointer(own, parts, arguments=arguments._asdict()),
                    saved=saved,
                    peers=None if group is None else SyncedLearners(group, parts, may_refuse=may_refuse(own)),
                    batch_size=share_of_batch(own, share.num_learners),
                    on_begin=on_begin,
                    origin=origin_of(cfg, mode=arguments.mode, source=plan.source, env_fn=plan.env_fn),
                )
                loop.run()
            if share.rank == 0:
                _conclude(console, plan, parts, env_setting)
    return parts.policy


def run_scheme(
    plan: Plan[Any],  # Any: the settings of any mode
    parts: Components,
    make_runner: MakeRunner,
    *,
    lines: Sequence[str],  # for the console: where the workers run
    max_duration_s: float = math.inf,
    on_begin: Callable[[], None] | None = None,
) -> tuple[RunResult, float]:
    """Train with workers behind the runner, and write what a serial run writes.

    Return the result, and the seconds from the first iteration to the last. `on_begin` is called after the first one.
    """
    cfg, arguments = plan.cfg, plan.arguments
    limits = Limits(arguments.max_env_step, arguments.max_train_iter, cfg.env.stop_value, max_duration_s)
    write_description(cfg, env_setting=plan.env_setting)
    opening = _opening(plan, parts, limits, lines)
    with RunConsole(cfg.exp_name, limits, opening=opening) as console, tracked(cfg) as trackers:
        trackers.follow(parts.metrics)
        loop = TrainingLoop(
            cfg,
            parts,
            limits=limits,
            console=console,
            checkpointer=Checkpointer(cfg, parts, arguments=arguments._asdict()),
            saved=resume_store(cfg.exp_name).load_newest() if plan.resumes else None,
            make_runner=make_runner,
            origin=origin_of(cfg, mode=arguments.mode, source=plan.source, env_fn=plan.env_fn),
            on_begin=on_begin,
        )
        result = loop.run()
        assert result is not None, "a driver evaluates"
        _conclude(console, plan, parts, plan.env_setting)
    return result, loop.training_s


def _opening(plan: Plan[Any], parts: Components, limits: Limits, lines: Sequence[str] = ()) -> list[str]:
    """Return the first lines of the console: what the run is."""
    assert parts.evaluator_env is not None, "the first learner evaluates"
    num_learners = parts.share.num_learners
    return opening_lines(
        plan.cfg,
        collector_env=parts.collector_env,
        evaluator_env=parts.evaluator_env,
        policy=parts.policy,
        limits=limits,
        overrides=plan.overrides,
        learners=[opening_line(plan.cfg, num_learners)] if num_learners > 1 else lines,
        env_fn=plan.env_fn,
    )


def _conclude(console: RunConsole, plan: Plan[Any], parts: Components, env_setting: EnvSetting | None) -> None:
    with console.phase("drawing the curve, filming the best model"):
        write_pictures(plan.cfg, parts.policy, seed=plan.arguments.seed, env_setting=env_setting)
    console.close_summary(closing_lines(plan.cfg.exp_name, mode=plan.arguments.mode))


@contextmanager
def _weights_kept(exp_name: str, parts: Components) -> Iterator[None]:
    """Save the first learner's weights where another one is lost, and add to the error how to start from them."""
    try:
        yield
    except CommError as error:
        num_updates = parts.learner.train_iter
        if parts.share.num_learners == 1 or parts.share.rank or not num_updates:
            raise
        name = f"iteration_{num_updates}.pth.tar"
        parts.learner.save_checkpoint(name)
        start = shlex.join(["--load-path", str(Path(exp_name) / "ckpt" / name)])
        raise CommError(
            f"{str(error).rstrip('.')}; a new run starts from the weights learned so far with  {start}"
        ) from error


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


# --- a learner that is not the first


def main(argv: Sequence[str]) -> int:
    """Run this learner's share of the run to its end; return the exit status."""
    setup_console(logging.INFO)
    store, rank, run = argv[0], int(argv[1]), json.loads(argv[2])
    sys.path[:] = run["path"]  # where the first learner finds the modules that the config names
    arguments = RunArguments(**run["arguments"])
    cfg = load_saved(run["exp_name"], seed=arguments.seed)
    timeout_s = float(cfg.learners.timeout_s)
    first = _First()
    watch_parent(partial(_leave, first, timeout_s))
    try:
        with LearnerGroup(
            store, rank=rank, world_size=arguments.num_learners, timeout_s=timeout_s, children=first
        ) as group:
            run_learner(Plan(cfg, arguments, None, resumes=run["resumes"]), group=group)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Exception as error:  # the user's env and model may raise anything; it is printed and ends the rank
        return report_error(error)
    return 0


class _First:
    """Watch on the first learner, the parent process: reports its end to the group, which then waits no longer."""

    def __init__(self) -> None:
        self._noted = threading.Lock()
        self._has_ended = False
        self._note: Callable[[int, str], None] | None = None

    def tell(self, note: Callable[[int, str], None]) -> None:
        """Call `note` once the first learner has ended."""
        with self._noted:
            self._note = note
            if self._has_ended:
                note(0, _GONE)

    def has_ended(self) -> None:
        """Report the end to the group."""
        with self._noted:
            self._has_ended = True
            if self._note is not None:
                self._note(0, _GONE)


def _leave(first: _First, timeout_s: float) -> None:
    """End after this iteration, as the first learner has ended; at once where it takes too long."""
    first.has_ended()
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(timeout_s)
    os._exit(1)
