"""Plan a run with central inference: read and check its config, and say who will do what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeAlias

from ding_like.comm.zmq.keys import load_seed_keys
from ding_like.comm.zmq.sockets import load_zmq
from ding_like.config import FrozenConfig
from ding_like.config.override import Override
from ding_like.entry.learners import RunArguments
from ding_like.entry.system_plan import SystemConfig, SystemPlan, plan_system
from ding_like.pipeline.seed.settings import SeedSettings, read_seed
from ding_like.utils.machine import reachable

SeedPlan: TypeAlias = SystemPlan[SeedSettings]


def plan_run(
    input_cfg: SystemConfig,
    arguments: RunArguments,
    *,
    overrides: Sequence[str] = (),
    exp_name: str | None = None,
    source: str | None = None,
    resumes: bool = False,
) -> SeedPlan:
    """Return what a run is made from; nothing is written or started. Raises ConfigError with the faults."""
    plan = plan_system(
        input_cfg, arguments, read=_read, overrides=overrides, exp_name=exp_name, source=source, resumes=resumes
    )
    load_zmq()  # says what to install
    if plan.settings.key_file is not None:
        load_seed_keys(plan.settings.key_file)
    return plan


def _read(
    system: Mapping[str, Any], cfg: FrozenConfig, source: str, overrides: Mapping[str, Override]
) -> tuple[SeedSettings, dict[str, Any]]:
    settings = read_seed(system, cfg, source=source, overrides=overrides)
    return settings, {"seed": asdict(settings)}


def described(plan: SeedPlan) -> list[str]:
    """Return lines that say who acts, who computes the actions and who learns."""
    settings, envs = plan.settings, plan.cfg.env.collector_env_num
    actors = f"{_number(settings.actor_processes, 'process', 'es')} of {_number(settings.actor_threads, 'thread')}"
    if not settings.actor_processes:
        actors = "none here: they join from other machines"
    elif settings.comm == "sync":
        actors += f" with {envs} envs each; synchronous, with the newest weights"
    else:
        lag = "" if settings.max_policy_lag is None else f", at most {settings.max_policy_lag} updates behind"
        actors += f" with {envs} envs each; asynchronous{lag}"
    servers = f"{_number(settings.inference_servers, 'server')} on {settings.inference_device}; {_batches(settings)}"
    if not settings.inference_servers:
        servers = "no server here: they join from other machines"
    weights = "after every turn with updates"
    if settings.comm == "sync":
        weights = "before every round"
    elif settings.broadcast_period:
        weights = f"every {settings.broadcast_period:g} s"
    limit = f", {settings.max_train_frequency:g} times a second at most" if settings.max_train_frequency > 0 else ""
    where = "ipc, in a folder of this user alone"
    if settings.transport == "tcp":
        keys = "without keys" if settings.key_file is None else f"with the keys of {settings.key_file}"
        where = f"tcp at {reachable(settings.host)}:{settings.port or 'any free port'}, {keys}"
    return [
        f"actors      {actors}",
        f"inference   {servers}; weights {weights}",
        f"updates     in this process, which holds the replay buffer{limit}",
        f"joined by   {where}",
    ]


def _batches(settings: SeedSettings) -> str:
    delay = f"{1000 * settings.inference_delay:g} ms after the first"
    if not settings.inference_batchsize:
        return f"a batch is what is there {delay}" if settings.inference_delay else "a batch is what is there"
    text = f"a batch is {_number(settings.inference_batchsize, 'request')}"
    return f"{text}, or what is there {delay}" if settings.inference_delay else f"{text} at most"


def _number(number: int, what: str, plural: str = "s") -> str:
    return f"{number} {what}{'' if number == 1 else plural}"
