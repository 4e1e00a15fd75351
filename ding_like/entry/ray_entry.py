"""Train from a config with collectors, and where wanted gradient workers, on Ray."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ding_like.comm.workers.failures import FAILURES_FILE, FailureLog
from ding_like.comm.workers.host import Host
from ding_like.config import read_config
from ding_like.entry.learners import RunArguments
from ding_like.entry.ray_plan import RayConfig, RayPlan, claimed, described, plan_run
from ding_like.entry.serial_entry import NO_LIMIT, load_overrides
from ding_like.errors import ConfigError, DingError, TrainingError
from ding_like.pipeline.build import build_serial, training_process
from ding_like.pipeline.checkpoint import Checkpointer, resume_store
from ding_like.pipeline.report.pictures import write_pictures
from ding_like.pipeline.report.progress import Limits
from ding_like.pipeline.report.run_console import RunConsole
from ding_like.pipeline.report.summary import closing_lines, opening_lines
from ding_like.pipeline.serial import SerialRun
from ding_like.policy import Policy

logger = logging.getLogger(__name__)


def ray_pipeline(
    input_cfg: RayConfig,
    seed: int = 0,
    *,
    max_train_iter: int = NO_LIMIT,
    max_env_step: int = NO_LIMIT,
    dynamic_seed: bool = True,
    overrides: Sequence[str] = (),
    exp_name: str | None = None,
    load_path: str | None = None,
    workers: int | None = None,
    address: str | None = None,
    host: Host | None = None,
) -> Policy:
    """Train with workers on Ray until a limit or `env.stop_value` is reached, and return the policy.

    A serial config runs as it is; `system_config['ray']` says who collects, computes gradients and applies them
    (docs/ray.md). `workers` and `address` stand in place of its `collect.workers` and `address`: without an address a
    cluster is started on this machine, and ended with the run. `overrides` are `section.key=value` strings, also
    `system.ray.key=value`; `load_path` is a checkpoint to start from. With a `host` that is open the workers run there,
    and no cluster is looked for. Raises ConfigError with every fault of the config at once, CommError where the cluster
    cannot be had, and TrainingError with its cause where a worker fails.
    """
    plan = plan_run(
        input_cfg,
        RunArguments("ray", seed, max_train_iter, max_env_step, dynamic_seed),
        overrides=[*overrides, *load_overrides(load_path)],
        exp_name=exp_name,
        workers=workers,
        address=address,
    )
    return _run(plan, host=host)


def resume_ray(
    exp_name: str,
    arguments: RunArguments,
    *,
    workers: int | None = None,
    address: str | None = None,
    host: Host | None = None,
) -> Policy:
    """Go on with an interrupted Ray run from its newest valid saved point, and return the policy.

    `arguments` are those that were saved with the point. The rows are saved with the driver's parts, so that there may
    be other numbers of `workers` than before, and another cluster.
    """
    config_file = Path(exp_name) / "total_config.py"
    file = read_config(config_file)
    given = (file.main_config, file.create_config, arguments.system or {})
    plan = plan_run(
        given, arguments, exp_name=exp_name, workers=workers, address=address, source=str(config_file), resumes=True
    )
    before = plan_run(given, arguments, exp_name=exp_name, source=str(config_file), resumes=True).settings
    for name, old, new in (
        ("collectors", before.collect.workers, plan.settings.collect.workers),
        ("address", before.address, plan.settings.address),
    ):
        if old != new:
            logger.info("%s: %s, where the run had %s", name, new or "none", old or "none")
    return _run(plan, host=host, resumes=True)


def _run(plan: RayPlan, *, host: Host | None, resumes: bool = False) -> Policy:
    """Train to the end with workers on a host, or on a cluster that is opened for it; return the policy."""
    with _clear_errors(), _opened(plan, host) as (opened, where):
        if not resumes:
            plan = claimed(plan)
        with training_process():
            return _train(plan, opened, where, resumes=resumes)


def _train(plan: RayPlan, host: Host, where: str, *, resumes: bool) -> Policy:
    cfg, arguments = plan.cfg, plan.arguments
    limits = Limits(arguments.max_env_step, arguments.max_train_iter, cfg.env.stop_value)
    parts = build_serial(
        cfg, seed=arguments.seed, dynamic_seed=arguments.dynamic_seed, with_buffer=not cfg.policy.on_policy
    )
    try:
        opening = opening_lines(
            cfg,
            collector_env=parts.collector_env,
            evaluator_env=parts.evaluator_env,
            policy=parts.policy,
            limits=limits,
            overrides=plan.given,
            learners=described(plan, where),
        )
        with RunConsole(cfg.exp_name, limits, opening=opening) as console:
            SerialRun(
                cfg,
                parts,
                limits=limits,
                console=console,
                checkpointer=Checkpointer(cfg, parts, arguments=arguments._asdict()),
                saved=resume_store(cfg.exp_name).load_newest() if resumes else None,
                make_turns=scheme_turns(
                    cfg, parts, plan.settings, host, arguments=..., log=FailureLog(Path(cfg.exp_name) / FAILURES_FILE)
                ),
            ).run()
            write_pictures(cfg, parts.policy, seed=arguments.seed)
            console.close_summary(closing_lines(cfg.exp_name, mode="ray"))
    finally:
        parts.close()
    return parts.policy
