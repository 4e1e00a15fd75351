"""Start the learners of a serial run on this machine, or join those that torchrun has started."""

from __future__ import annotations

import json
import logging
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ding_like.comm.learner_group import TORCHRUN, LearnerGroup, environment_int, in_environment
from ding_like.config import FrozenConfig, deep_merge
from ding_like.entry.plan import Plan
from ding_like.errors import CommError, ConfigError, DingError
from ding_like.pipeline.checkpoint import resume_store
from ding_like.pipeline.learners.shares import share_config
from ding_like.pipeline.learners.synced import LearnerProcesses
from ding_like.utils.log import log_to_file
from ding_like.utils.machine import num_cores

logger = logging.getLogger(__name__)


def number_of_learners(given: int | None, *, default: int = 1) -> int:
    """Return how many learners a run has: as many as are asked for, or torchrun has started, else `default`.

    Raises ConfigError for a number below 1, where both are given and differ, and for half of torchrun's variables.
    """
    missing = [name for name in TORCHRUN if not os.environ.get(name)]
    given_by_torchrun = [f"{name}={os.environ[name]}" for name in ("RANK", "WORLD_SIZE") if name not in missing]
    if missing and given_by_torchrun:
        raise ConfigError(
            f"the environment has {' and '.join(given_by_torchrun)} but not {', '.join(missing)}, which torchrun sets "
            "together: start the learners by torchrun or with --learners N, or unset "
            f"{' and '.join(each.partition('=')[0] for each in given_by_torchrun)}."
        )
    started = environment_int("WORLD_SIZE") if in_environment() else None
    if given is not None and given < 1:
        raise ConfigError(f"--learners is {given}; give a number of processes from 1.")
    if None not in (given, started) and given != started:
        raise ConfigError(
            f"--learners is {given}, but torchrun has started {started} processes: leave --learners out, or give "
            f"--nproc-per-node {given}."
        )
    return given or started or default


def check_cores(num_learners: int) -> None:
    """Raise ConfigError for more learners than this process may use CPU cores."""
    cores = num_cores()
    if num_learners > cores:
        raise ConfigError(
            f"--learners is {num_learners}, and this machine has {cores} CPU {'core' if cores == 1 else 'cores'} for "
            f"them: each learner is a process that keeps a core busy. Give --learners from 1 to {cores}, or spread "
            "them over machines by torchrun."
        )


def is_first() -> bool:
    """Return whether this process is the first of those that torchrun has started, or no such process."""
    return not in_environment() or environment_int("RANK") == 0


@contextmanager
def joined(plan: Plan[None]) -> Iterator[tuple[Plan[None], LearnerGroup | None]]:
    """Yield (the run's plan, the group of its learners), None of one learner; the others end with the block.

    The config is checked before anything is started.
    """
    cfg, num_learners = plan.cfg, plan.arguments.num_learners
    if num_learners == 1:
        yield plan, None
        return
    if not in_environment():
        check_cores(num_learners)
    share_config(cfg, num_learners)
    timeout_s = float(cfg.learners.timeout_s)
    if in_environment():
        with LearnerGroup.from_environment(timeout_s=timeout_s) as group, _named_by_first(cfg, group) as named:
            with _add_how_to_resume(named, group):
                yield replace(plan, cfg=named), group
        return
    if plan.env_setting is not None or plan.model is not None:
        raise ConfigError(
            "env_setting and model are objects of this process, which the other learners' processes do not have: "
            "register the env or the model and name it in the config (import_names), or start this script by torchrun."
        )

    def command(rank: int, store: Path) -> Sequence[str]:
        return worker_command(plan, resumes=plan.resumes, store=str(store), rank=rank)

    folder = log_folder(cfg.exp_name)
    with LearnerProcesses(command, world_size=num_learners, log_folder=folder) as processes:
        with processes.join(timeout_s=timeout_s) as group, _add_how_to_resume(cfg, group):
            yield plan, group


def worker_command(plan: Plan[Any], **given: Any) -> list[str]:  # Any: settings of a mode, and JSON
    """Return the command of a process that runs a plan's part as `given` describes; see `child_run`."""
    worker = {"exp_name": plan.cfg.exp_name, "arguments": plan.arguments._asdict(), **given}
    return [sys.executable, "-m", "ding_like.entry.child_run", json.dumps({"path": sys.path, "worker": worker})]


def log_folder(exp_name: str) -> Path:
    """Return the folder of the logs of all learners but the first."""
    return Path(exp_name) / "log" / "learners"


@contextmanager
def _named_by_first(cfg: FrozenConfig, group: LearnerGroup) -> Iterator[FrozenConfig]:
    """Yield the config with the folder that the first rank has made; the others log to a file there."""
    name = group.broadcast_json(cfg.exp_name)
    if group.rank == 0:
        yield cfg
        return
    with log_to_file(log_folder(name) / f"rank{group.rank}.txt"):
        try:
            yield FrozenConfig(deep_merge(cfg, {"exp_name": name}))
        except Exception as error:  # the user's code may raise anything; it is logged and raised again
            logger.error("%s: %s", type(error).__name__, error, exc_info=not isinstance(error, DingError))
            raise


@contextmanager
def _add_how_to_resume(cfg: FrozenConfig, group: LearnerGroup) -> Iterator[None]:
    """Add to the first learner's error about a lost one where the logs are, and how to resume the run."""
    try:
        yield
    except CommError as error:
        if group.rank:
            raise
        folder = str(log_folder(cfg.exp_name))
        where = "" if folder in str(error) else f"logs are in {folder}/; "
        go_on = "no point was saved to go on from"
        if _saved_by_all(cfg.exp_name, group.world_size):
            go_on = f"what was saved is whole: go on with  {shlex.join(['ding', '--resume', cfg.exp_name])}"
        raise CommError(f"{str(error).rstrip('.')}; {where}{go_on}") from error


def _saved_by_all(exp_name: str, num_learners: int) -> bool:
    """Return whether there is a point of a step that every learner on this machine has saved; others' are not seen."""
    here = environment_int("LOCAL_WORLD_SIZE", num_learners) if in_environment() else num_learners
    return bool(set.intersection(*(set(resume_store(exp_name, rank=rank).steps()) for rank in range(here))))


def opening_line(cfg: FrozenConfig, num_learners: int) -> str:
    """Return the line of the console about several learners: the share of each."""
    own: Any = share_config(cfg, num_learners)
    parts = [f"{own.env.collector_env_num} of {cfg.env.collector_env_num} envs"]
    if not cfg.policy.on_policy:
        rows, stored = cfg.policy.learn.batch_size, cfg.policy.other.replay_buffer.replay_buffer_size
        parts += [
            f"{rows // num_learners} of {rows} rows of a batch",
            f"{stored // num_learners:,} of {stored:,} stored",
        ]
    return f"learners    {num_learners}, each with {', '.join(parts)}; the others log to {log_folder(cfg.exp_name)}/"
