"""Train from a config by the ranks of a torch.distributed group: rank 0 learns, the others collect.

The ranks are started here, or joined: those of torchrun, srun or mpirun.
"""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ding_like.comm.learner_group import TORCHRUN, LearnerGroup, Place, environment_int, in_environment
from ding_like.config import FrozenConfig, deep_merge
from ding_like.entry.learners import worker_command
from ding_like.entry.plan import NO_LIMIT, Plan, RunArguments, SystemInput, make_plan
from ding_like.entry.training import TrainingMode
from ding_like.errors import ConfigError
from ding_like.pipeline.collect import RolloutWorker
from ding_like.pipeline.components import Components
from ding_like.pipeline.factories import LearnerSide, SchemeFactories, build_driver
from ding_like.pipeline.learners.synced import LearnerProcesses
from ding_like.pipeline.process import training_process
from ding_like.pipeline.ranks.runner import CollectingRanks, RankRunner
from ding_like.pipeline.ranks.settings import RankSettings, read_ranks
from ding_like.pipeline.training_loop import MakeRunner
from ding_like.policy import Policy
from ding_like.utils.log import shown_as_by_the_command
from ding_like.utils.registries import RANK_COLLECTOR_REGISTRY, WEIGHT_UPDATER_REGISTRY
from ding_like.utils.run_folder import RunFolder

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
    return RankMode.of(
        input_cfg, arguments, overrides=overrides, exp_name=exp_name, load_path=load_path, collect_ranks=collect_ranks
    ).start()


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
            ) as self._ranks:
                yield

    def _group_of_environment(self) -> LearnerGroup:
        settings = self.plan.settings
        # Rows and weights travel on the CPU.
        return LearnerGroup.from_environment(
            timeout_s=settings.patience_s, join_s=settings.join_s, num_gpus=0, called=_CALLED
        )

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
