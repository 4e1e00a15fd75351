"""Train from a config by the ranks of a torch.distributed group: rank 0 learns, the others collect.

The ranks are started here, or joined: those of torchrun, srun or mpirun. python -m ding_like.entry.ranks_entry RUN
is a rank that was started here; RUN describes the run as JSON.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from ding_like.comm.learner_group import TORCHRUN, LearnerGroup, Place, environment_int, in_environment
from ding_like.config import FrozenConfig, deep_merge
from ding_like.config.override import Override
from ding_like.entry.learners import report_error
from ding_like.entry.plan import NO_LIMIT, Plan, RunArguments, SystemInput, plan_system
from ding_like.entry.serial_entry import run_scheme
from ding_like.errors import ConfigError
from ding_like.pipeline.collect import RolloutWorker
from ding_like.pipeline.components import Components
from ding_like.pipeline.factories import SchemeFactories
from ding_like.pipeline.learner_side import LearnerSide, build_driver
from ding_like.pipeline.learners.processes import LearnerProcesses
from ding_like.pipeline.process import training_process
from ding_like.pipeline.ranks.runner import CollectingRanks, RankRunner
from ding_like.pipeline.ranks.settings import RankSettings, read_ranks
from ding_like.policy import Policy
from ding_like.utils.log import setup_console, shown_as_by_the_command
from ding_like.utils.processes import watch_parent
from ding_like.utils.registries import RANK_COLLECTOR_REGISTRY, WEIGHT_UPDATER_REGISTRY
from ding_like.utils.run_folder import RunFolder

RankPlan: TypeAlias = Plan[RankSettings]

# Imported, not run as a module: its loggers keep their names, and its classes exist once.
_MAIN = "import sys; from ding_like.entry.ranks_entry import main; sys.exit(main(sys.argv[1:]))"
_CALLED = "rank"  # in messages
_GRACE_S = 10.0  # for a rank to end by itself once the first one has ended
# Rank and number of ranks, as other launchers than torchrun say them; a step of srun before the whole job.
_LAUNCHERS = (
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)
_SLURM_PORTS = 20_000  # the first of 20,000: a job's port follows from its number


@shown_as_by_the_command()
def ranks_pipeline(
    input_cfg: SystemInput,
    seed: int = 0,
    *,
    max_train_iter: int = NO_LIMIT,
    max_env_step: int = NO_LIMIT,
    dynamic_seed: bool = True,
    overrides: Sequence[str] = (),
    exp_name: str | None = None,
    load_path: str | None = None,
    collect_ranks: int | None = None,
) -> Policy | None:
    """Train by ranks until a limit or `env.stop_value` is reached; return the policy, None in a rank that collects.

    A serial config runs as it is; `system_config['ranks']` has the settings (docs/ranks.md). Under torchrun, srun or
    mpirun this process is one of the ranks; else `collect_ranks` processes are started on this machine. `overrides` are
    `section.key=value` strings, also `system.ranks.key=value`; `load_path` is a checkpoint to start from. Raises
    ConfigError with every fault of the config at once, and RunnerLostError, with a point saved, where a rank is lost.
    """
    arguments = RunArguments("ranks", seed, max_train_iter, max_env_step, dynamic_seed)
    return _run(
        _plan(
            input_cfg, arguments, overrides=overrides, exp_name=exp_name, load_path=load_path,
            collect_ranks=collect_ranks,
        )
    )  # fmt: skip


def resume_ranks(exp_name: str, arguments: RunArguments) -> Policy | None:
    """Resume a run from its newest valid saved point, by the `arguments` saved with it; see `resume_pipeline`.

    There may be another number of ranks than before.
    """
    return _run(_plan(None, arguments, exp_name=exp_name))


def adopt_launcher() -> None:
    """Set the variables of torchrun from those of srun or mpirun, where one has started this process."""
    if in_environment():
        return
    for rank, world_size in _LAUNCHERS:
        if os.environ.get(rank) and int(os.environ.get(world_size) or 1) > 1:
            found = {"RANK": os.environ[rank], "WORLD_SIZE": os.environ[world_size]}
            nodes = os.environ.get("SLURM_STEP_NODELIST") or os.environ.get("SLURM_JOB_NODELIST")
            if nodes:
                found["MASTER_ADDR"] = first_node(nodes)
            if job := os.environ.get("SLURM_JOB_ID"):
                found["MASTER_PORT"] = str(_SLURM_PORTS + int(job) % 20_000)
            os.environ.update({name: value for name, value in found.items() if name not in os.environ})
            missing = [name for name in TORCHRUN if not os.environ.get(name)]
            if missing:
                raise ConfigError(
                    f"{rank} says that this is one of {os.environ[world_size]} ranks, but {' and '.join(missing)} are "
                    "not set: export the host name of rank 0 as MASTER_ADDR, and a free port there as MASTER_PORT."
                )
            return


def first_node(nodes: str) -> str:
    """Return the first host of a list as Slurm writes it: "gpu[03-05,9],login" is gpu03 and others."""
    host, _, ranges = nodes.partition("[")
    if "," in host or not ranges:
        return host.partition(",")[0]
    return host + re.split(r"[-,\]]", ranges)[0]


def _plan(
    input_cfg: SystemInput | None, arguments: RunArguments, *, collect_ranks: int | None = None, **more: Any
) -> RankPlan:
    """Return what a run is made from; nothing is written or started. Raises ConfigError with the faults."""
    adopt_launcher()
    if in_environment():
        joined = environment_int("WORLD_SIZE") - 1
        if joined < 1 or collect_ranks not in (None, joined):
            given = "" if collect_ranks is None else f", and --collect-ranks is {collect_ranks}"
            raise ConfigError(
                f"{joined + 1} processes were started{given}: one of them trains, all others collect. Start one more "
                "than shall collect, 2 or more, and leave --collect-ranks out."
            )
        collect_ranks = joined

    def read(
        system: Mapping[str, Any], cfg: FrozenConfig, source: str, overrides: Mapping[str, Override]
    ) -> RankSettings:
        return read_ranks(system, cfg, collect_ranks=collect_ranks, source=source, overrides=overrides)

    return plan_system(input_cfg, arguments, read, **more)


def _run(plan: RankPlan) -> Policy | None:
    if in_environment() and environment_int("RANK") > 0:
        for number in (signal.SIGINT, signal.SIGTERM):  # which all ranks get: the first ends the others
            signal.signal(number, signal.SIG_IGN)
        with _from_environment(plan.settings) as group:
            _collect(group, plan.cfg, plan.settings, plan.arguments)
        return None
    with RunFolder() as folder, training_process():
        plan = plan.claimed(folder)
        cfg, arguments = plan.cfg, plan.arguments
        with _joined(plan) as group:
            parts = build_driver(cfg, seed=arguments.seed, dynamic_seed=arguments.dynamic_seed)
            with closing(parts):
                make_runner = partial(_make_runner, cfg, parts, plan.settings, group)
                run_scheme(plan, parts, make_runner, lines=_described(plan), on_begin=folder.keep)
    return parts.policy


def _make_runner(
    cfg: FrozenConfig, parts: Components, settings: RankSettings, group: LearnerGroup, is_leaving: Callable[[], bool]
) -> RankRunner:
    """Have the other ranks build their envs, and return the runner once they have."""
    # Known once the parts stand where the run begins or goes on.
    group.broadcast_json({"exp_name": str(Path(cfg.exp_name).absolute()), "begun_at": parts.collector.envstep})
    ranks = CollectingRanks(group, timeout_s=settings.timeout_s)
    updater = WEIGHT_UPDATER_REGISTRY.get(settings.updater["type"])(
        *(group.store, parts.policy.collect_mode, len(ranks.ranks), settings.sync),
        timeout_s=settings.patience_s,
        dtype=settings.dtype,
    )
    ranks.wait_ready(timeout_s=settings.join_s)
    return RankRunner(LearnerSide(cfg, parts), ranks, updater, settings, is_leaving=is_leaving)


def _collect(group: LearnerGroup, cfg: FrozenConfig, settings: RankSettings, arguments: RunArguments) -> None:
    """Collect for the run until the first rank ends it."""
    start = group.broadcast_json()
    cfg = FrozenConfig(deep_merge(cfg, {"exp_name": start["exp_name"]}))

    def make_end(rank: int) -> RolloutWorker:
        made = SchemeFactories.of(cfg, seed=arguments.seed, dynamic_seed=arguments.dynamic_seed)
        # made_in: not by the process of the run itself, whose generators would stay as they are.
        factories = replace(made, begun_at=start["begun_at"], made_in="")
        policy, envs = factories.actor("cpu"), factories.train_envs("cpu", rank, 0)
        try:
            return factories.algo("cpu", policy).rollout_worker(envs, rank, 0)
        except BaseException:
            envs.close()
            raise

    with training_process():
        make = RANK_COLLECTOR_REGISTRY.get(settings.collector["type"])
        with make(group, make_end, timeout_s=settings.timeout_s) as collector:
            collector.serve()


# --- the ranks


def _from_environment(settings: RankSettings) -> LearnerGroup:
    # Rows and weights travel on the CPU.
    return LearnerGroup.from_environment(
        timeout_s=settings.patience_s, join_s=settings.join_s, num_gpus=0, called=_CALLED
    )


@contextmanager
def _joined(plan: RankPlan) -> Iterator[LearnerGroup]:
    """Join the ranks as the first: those that a launcher has started, else processes that are started for it."""
    settings, cfg = plan.settings, plan.cfg
    if in_environment():
        with _from_environment(settings) as group:
            yield group
        return
    world_size = settings.collect_ranks + 1
    # On the loopback interface alone, and open before any rank asks for it.
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    run = {"exp_name": cfg.exp_name, "path": sys.path, "arguments": plan.arguments._asdict()}

    def command(rank: int, _: Path) -> Sequence[str]:
        found = dict(zip(TORCHRUN, (str(rank), str(world_size), "127.0.0.1", str(port)), strict=True))
        return [sys.executable, "-c", _MAIN, json.dumps({**run, "environment": found})]

    with listener, LearnerProcesses(command, world_size=world_size, log_folder=_logs(cfg)) as processes:
        with LearnerGroup.over_tcp(
            *("127.0.0.1", port),
            rank=0,
            world_size=world_size,
            place=Place(0, world_size, 0),
            hosts_store=True,
            listener=listener.detach(),
            timeout_s=settings.patience_s,
            join_s=settings.join_s,
            children=processes,
            called=_CALLED,
        ) as group:
            yield group


def _logs(cfg: FrozenConfig) -> Path:
    return Path(cfg.exp_name) / "log" / "ranks"


def _described(plan: RankPlan) -> list[str]:
    """Return lines that say who collects, and how."""
    settings, envs = plan.settings, plan.cfg.env.collector_env_num
    how = "synchronous, with the newest weights" if settings.sync else "asynchronous, ahead of the learner"
    where = "joined" if in_environment() else f"started here; they log to {_logs(plan.cfg)}/"
    return [f"ranks       0 learns, 1 to {settings.collect_ranks} collect with {envs} envs each: {how}; {where}"]


def main(argv: Sequence[str]) -> int:
    """Collect as a rank that was started by the first one; return the exit status."""
    setup_console(logging.INFO)
    run = json.loads(argv[0])
    sys.path[:] = run["path"]  # where the first rank finds the modules that the config names
    os.environ.update(run["environment"])
    watch_parent(_leave)
    try:
        resume_ranks(run["exp_name"], RunArguments(**run["arguments"]))
    except Exception as error:  # the user's env may raise anything; it is printed and ends the rank
        return report_error(error)
    return 0


def _leave() -> None:
    """End, where the rank has not noticed by itself that the first one has ended."""
    threading.Event().wait(_GRACE_S)
    os._exit(1)
