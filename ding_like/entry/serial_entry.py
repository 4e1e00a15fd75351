"""Train from a config in one process, or in several learners that act as one."""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ding_like.comm.learner_group import TORCHRUN, LearnerGroup, Place, environment_int, in_environment, open_store
from ding_like.config import FrozenConfig, deep_merge
from ding_like.entry.training import (
    NO_LIMIT,
    InputConfig,
    Plan,
    RunArguments,
    SystemInput,
    TrainingMode,
    check_mode,
    make_plan,
)
from ding_like.envs import get_vec_env_setting
from ding_like.errors import CommError, ConfigError, DingError
from ding_like.pipeline.collect import RolloutWorker
from ding_like.pipeline.components import Components, build_serial
from ding_like.pipeline.envs import EnvSetting
from ding_like.pipeline.learners.synced import (
    LearnerProcesses,
    SyncedLearners,
    join_policy,
    may_refuse,
    share_config,
    share_envs,
    share_of_batch,
)
from ding_like.pipeline.process import training_process
from ding_like.pipeline.ranks import CollectingRanks, RankRunner
from ding_like.pipeline.record import resume_store
from ding_like.pipeline.scheme_parts import LearnerSide, SchemeFactories, build_driver
from ding_like.pipeline.settings import RankSettings, read_ranks
from ding_like.pipeline.training_loop import MakeRunner
from ding_like.policy import Policy
from ding_like.policy.sharing import Share
from ding_like.types import Section
from ding_like.utils.files import RunFolder
from ding_like.utils.log import log_to_file, shown_as_by_the_command
from ding_like.utils.processes import num_cores
from ding_like.utils.registries import RANK_COLLECTOR_REGISTRY, WEIGHT_UPDATER_REGISTRY

if TYPE_CHECKING:
    import torch


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
    arguments = RunArguments("serial", seed, max_train_iter, max_env_step, dynamic_seed)
    given = {"env_setting": env_setting, "model": model, "exp_name": exp_name, "load_path": load_path}
    return SerialMode.of(input_cfg, arguments, learners=learners, overrides=overrides, **given).train().policy


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
    arguments = RunArguments("serial_onpolicy", seed, max_train_iter, max_env_step, dynamic_seed)
    given = {"env_setting": env_setting, "model": model, "exp_name": exp_name, "load_path": load_path}
    return SerialMode.of(input_cfg, arguments, learners=learners, overrides=overrides, **given).train().policy


class SerialMode(TrainingMode[None]):
    """Serial run: by this process alone, or by several learners that act as one."""

    @classmethod
    def of(
        cls, input_cfg: SystemInput | None, arguments: RunArguments, *, learners: int | None = None, **given: Any
    ) -> SerialMode:
        """Return the planned run with `learners`: by default as many as torchrun has started, or the run had."""
        asked, had = number_of_learners(learners, default=arguments.num_learners), arguments.num_learners
        if input_cfg is None and asked != had:
            raise ConfigError(
                f"{given['exp_name']} is a run of {'one learner' if had == 1 else f'{had} learners'}, each with envs "
                f"and rows of its own: it goes on with as many, not with {asked}."
            )
        return cls(make_plan(input_cfg, arguments._replace(num_learners=asked), renew_dir=is_first(), **given))

    def __init__(self, plan: Plan[None]) -> None:
        check_mode(plan.cfg, plan.arguments.mode)
        super().__init__(plan)

    def lines(self) -> list[str]:
        """Return the line about several learners."""
        num_learners = self.plan.arguments.num_learners
        return [opening_line(self.plan.cfg, num_learners)] if num_learners > 1 else []

    def dry_run(self) -> tuple[list[str], bool]:
        """Return (lines that describe what would run where, True: it fits)."""
        first, *more = super().dry_run()[0]
        return [first, f"collect     in {self.plan.cfg.env.collector_env_num} envs, beside the updates", *more], True

    @contextmanager
    def opened(self, folder: RunFolder) -> Iterator[None]:
        """Claim the folder, and join the other learners, which are started unless torchrun has started them."""
        if self.group is not None:  # which the first learner has opened
            yield
            return
        if is_first():  # of the ranks of torchrun, one makes the folder and holds it for all
            self.plan = self.plan.claimed(folder)
        with joined(self.plan) as (self.plan, self.group), self._weights_kept():
            yield

    def build(self) -> Components:
        """Return the components of this process: of several learners, with its share."""
        plan, group = self.plan, self.group
        share, env_setting = Share(), plan.env_setting
        if group is not None:
            share = Share(group.rank, group.world_size)
            env_setting = share_envs(env_setting or get_vec_env_setting(plan.cfg.env), share)
        self._parts = build_serial(
            self._own_config,
            seed=plan.arguments.seed,
            env_setting=env_setting,
            model=plan.model,
            dynamic_seed=plan.arguments.dynamic_seed,
            with_buffer=plan.arguments.mode == "serial",
            share=share,
            make_reducer=None if group is None else partial(join_policy, group),
        )
        return self._parts

    @property
    def _own_config(self) -> Any:  # Any: a config
        """Config of this process: of several learners, with its share of envs and rows."""
        return self.plan.cfg if self.group is None else share_config(self.plan.cfg, self.group.world_size)

    def loop_settings(self, parts: Components) -> Section:
        """Return the loop's config; of several learners, with what keeps them in step."""
        cfg = self._own_config
        if self.group is None:
            return {"cfg": cfg}
        peers = SyncedLearners(self.group, parts, may_refuse=may_refuse(cfg))
        return {"cfg": cfg, "peers": peers, "batch_size": share_of_batch(cfg, self.group.world_size)}

    @contextmanager
    def _weights_kept(self) -> Iterator[None]:
        """Save the first learner's weights where another one is lost, and add to the error how to start from them."""
        try:
            yield
        except CommError as error:
            parts = getattr(self, "_parts", None)
            if self.group is None or self.group.rank or parts is None or not parts.learner.train_iter:
                raise
            name = f"iteration_{parts.learner.train_iter}.pth.tar"
            parts.learner.save_checkpoint(name)
            start = shlex.join(["--load-path", str(Path(self.plan.cfg.exp_name) / "ckpt" / name)])
            raise CommError(
                f"{str(error).rstrip('.')}; a new run starts from the weights learned so far with  {start}"
            ) from error


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
        # The points of every learner on this machine; others' are not seen.
        here = environment_int("LOCAL_WORLD_SIZE", group.world_size) if in_environment() else group.world_size
        if set.intersection(*(set(resume_store(cfg.exp_name, rank=rank).steps()) for rank in range(here))):
            go_on = f"what was saved is whole: go on with  {shlex.join(['ding', '--resume', cfg.exp_name])}"
        raise CommError(f"{str(error).rstrip('.')}; {where}{go_on}") from error


def opening_line(cfg: FrozenConfig, num_learners: int) -> str:
    """Return the line of the console about several learners: the share of each."""
    own: Any = share_config(cfg, num_learners)
    parts = [f"{own.env.collector_env_num} of {cfg.env.collector_env_num} envs"]
    if not cfg.policy.on_policy:
        rows, stored = cfg.policy.learn.batch_size, cfg.policy.other.replay_buffer.replay_buffer_size
        parts.append(f"{rows // num_learners} of {rows} rows of a batch")
        parts.append(f"{stored // num_learners:,} of {stored:,} stored")
    return f"learners    {num_learners}, each with {', '.join(parts)}; the others log to {log_folder(cfg.exp_name)}/"


_CALLED = "rank"  # in messages
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
    given: dict[str, Any] = {"exp_name": exp_name, "load_path": load_path, "collect_ranks": collect_ranks}
    return RankMode.of(input_cfg, arguments, overrides=overrides, **given).start()


class RankMode(TrainingMode[RankSettings]):
    """Run by the ranks of a torch.distributed group: rank 0 learns, the others collect."""

    @classmethod
    def of(
        cls, input_cfg: SystemInput | None, arguments: RunArguments, *, collect_ranks: int | None = None, **given: Any
    ) -> RankMode:
        """Return the planned run; a resumed one may have another number of ranks than before."""
        adopt_launcher()
        if in_environment():
            joined = environment_int("WORLD_SIZE") - 1
            if joined < 1 or collect_ranks not in (None, joined):
                asked = "" if collect_ranks is None else f", and --collect-ranks is {collect_ranks}"
                raise ConfigError(
                    f"{joined + 1} processes were started{asked}: one of them trains, all others collect. Start one "
                    "more than shall collect, 2 or more, and leave --collect-ranks out."
                )
            collect_ranks = joined
        return cls(make_plan(input_cfg, arguments, partial(read_ranks, collect_ranks=collect_ranks), **given))

    def lines(self) -> list[str]:
        """Return the line that describes who collects, and how."""
        settings, envs = self.plan.settings, self.plan.cfg.env.collector_env_num
        how = "synchronous, with the newest weights" if settings.sync else "asynchronous, ahead of the learner"
        where = "joined" if in_environment() else f"started here; they log to {self._logs}/"
        return [f"ranks       0 learns, 1 to {settings.collect_ranks} collect with {envs} envs each: {how}; {where}"]

    @property
    def _logs(self) -> Path:
        return Path(self.plan.cfg.exp_name) / "log" / "ranks"

    def start(self) -> Policy | None:
        """Train to the end and return the policy; as a rank that collects, do so until the first rank ends it."""
        if not in_environment() or environment_int("RANK") == 0:
            return super().start()
        for number in (signal.SIGINT, signal.SIGTERM):  # which all ranks get: the first ends the others
            signal.signal(number, signal.SIG_IGN)
        with self._group_of_environment() as group:
            _collect(group, self.plan)
        return None

    @contextmanager
    def opened(self, folder: RunFolder) -> Iterator[None]:
        """Claim the folder, and join the ranks as the first: a launcher's, else processes that are started for it."""
        self.plan = self.plan.claimed(folder)
        settings, world_size = self.plan.settings, self.plan.settings.collect_ranks + 1
        if in_environment():
            with self._group_of_environment() as self._ranks:
                yield
            return
        # On the loopback interface alone, and open before any rank asks for it.
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]

        def command(rank: int, _: Path) -> Sequence[str]:
            found = dict(zip(TORCHRUN, (str(rank), str(world_size), "127.0.0.1", str(port)), strict=True))
            return worker_command(self.plan, environment=found)

        with listener, LearnerProcesses(command, world_size=world_size, log_folder=self._logs) as processes:
            store = open_store(
                "127.0.0.1", port, world_size=world_size, hosts_store=True, listener=listener.detach(),
                join_s=settings.join_s, name=f"{_CALLED} 0 of {world_size}",
            )  # fmt: skip
            with LearnerGroup(
                store, rank=0, world_size=world_size, place=Place(0, world_size, 0), timeout_s=settings.patience_s,
                join_s=settings.join_s, children=processes, called=_CALLED,
            ) as self._ranks:  # fmt: skip
                yield

    def _group_of_environment(self) -> LearnerGroup:
        settings = self.plan.settings
        # Rows and weights travel on the CPU.
        limits_s = {"timeout_s": settings.patience_s, "join_s": settings.join_s}
        return LearnerGroup.from_environment(**limits_s, num_gpus=0, called=_CALLED)

    def build(self) -> Components:
        """Return the components of the first rank."""
        return build_driver(self.plan.cfg, seed=self.plan.arguments.seed, dynamic_seed=self.plan.arguments.dynamic_seed)

    def make_runner(self, parts: Components) -> MakeRunner:
        """Return the factory of the runner, which has the other ranks build their envs."""
        cfg, settings, group = self.plan.cfg, self.plan.settings, self._ranks

        def make(is_leaving: Callable[[], bool]) -> RankRunner:
            # Known once the parts have been restored.
            start = {"exp_name": str(Path(cfg.exp_name).absolute()), "begun_at": parts.collector.envstep}
            group.broadcast_json(start)
            ranks = CollectingRanks(group, timeout_s=settings.timeout_s)
            updater = WEIGHT_UPDATER_REGISTRY.get(settings.updater["type"])(
                *(group.store, parts.policy.collect_mode, len(ranks.ranks), settings.sync),
                timeout_s=settings.patience_s,
                dtype=settings.dtype,
            )
            ranks.wait_ready(timeout_s=settings.join_s)
            side = LearnerSide(cfg, parts, max_policy_lag=settings.max_policy_lag)
            return RankRunner(side, ranks, updater, settings, is_leaving=is_leaving)

        return make


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


def _collect(group: LearnerGroup, plan: Plan[RankSettings]) -> None:
    """Collect for the run until the first rank ends it."""
    settings, arguments, start = plan.settings, plan.arguments, group.broadcast_json()
    cfg = FrozenConfig(deep_merge(plan.cfg, {"exp_name": start["exp_name"]}))

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
