"""Run the loop of a planned run, whose steps workers take: with console, saved points, pictures and summary."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ding_like.agent.description import write_description
from ding_like.agent.pictures import write_pictures
from ding_like.comm.workers.raised import place_raised, worker_of
from ding_like.entry.system_plan import SystemPlan
from ding_like.errors import DingError, TrainingError
from ding_like.pipeline.build.envs import EnvSetting
from ding_like.pipeline.build.serial import Components
from ding_like.pipeline.checkpoint import Checkpointer, resume_store
from ding_like.pipeline.roles.record import RunResult, origin_of
from ding_like.pipeline.runner import MakeRunner
from ding_like.pipeline.training_loop import TrainingLoop
from ding_like.report.progress import Limits
from ding_like.report.run_console import RunConsole
from ding_like.report.summary import closing_lines, opening_lines
from ding_like.utils.trackers import tracked


def run_by(
    plan: SystemPlan[Any],  # Any: of any mode's settings
    parts: Components,
    make_runner: MakeRunner,
    *,
    said: Sequence[str],  # of who works where, before the run begins
    env_setting: EnvSetting | None = None,
    max_duration_s: float = math.inf,
    resumes: bool = False,
    on_begin: Callable[[], None] | None = None,
) -> tuple[RunResult, float]:
    """Train with these parts to the end, and write what a serial run writes.

    Return the result, and the seconds from the first turn to the last. `on_begin` is called when the first turn of the
    loop is done.
    """
    cfg, arguments = plan.cfg, plan.arguments
    limits = Limits(arguments.max_env_step, arguments.max_train_iter, cfg.env.stop_value, max_duration_s)
    assert parts.evaluator_env is not None, "a driver evaluates"
    write_description(cfg, env_setting=env_setting)
    opening = opening_lines(
        cfg,
        collector_env=parts.collector_env,
        evaluator_env=parts.evaluator_env,
        policy=parts.policy,
        limits=limits,
        overrides=plan.given,
        learners=said,
        env_fn=env_setting and env_setting[0],
    )
    with RunConsole(cfg.exp_name, limits, opening=opening) as console, tracked(cfg) as trackers:
        trackers.follow(parts.metrics)
        run = TrainingLoop(
            cfg,
            parts,
            limits=limits,
            console=console,
            checkpointer=Checkpointer(cfg, parts, arguments=arguments._asdict()),
            saved=resume_store(cfg.exp_name).load_newest() if resumes else None,
            make_runner=make_runner,
            origin=origin_of(cfg, mode=arguments.mode, source=plan.source, env_fn=env_setting and env_setting[0]),
            on_begin=on_begin,
        )
        result = run.run()
        assert result is not None, "a driver evaluates"
        with console.phase("drawing the curve, filming the best model"):
            write_pictures(cfg, parts.policy, seed=arguments.seed, env_setting=env_setting)
        console.close_summary(closing_lines(cfg.exp_name, mode=arguments.mode))
    return result, run.training_s


@contextmanager
def clear_errors() -> Iterator[None]:
    """Say of an error that a worker raised where that was, in a line of its own; it becomes one of ours."""
    try:
        yield
    except Exception as error:  # a worker's code may raise anything; it is raised again with its place
        where = worker_of(error)
        if where is None:
            raise
        is_ours = isinstance(error, DingError)
        text, kind = (str(error), type(error)) if is_ours else (f"{type(error).__name__}: {error}", TrainingError)
        raise kind(f"{text}\n  raised {where}, at {place_raised(error)}") from error
