"""Plan of a Ray run: its checked config, and what will run where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeAlias

from ding_like.comm.ray.needs import Need
from ding_like.config import FrozenConfig
from ding_like.config.override import Override
from ding_like.entry.learners import RunArguments
from ding_like.entry.system_plan import SystemConfig, SystemPlan, plan_system
from ding_like.pipeline.ray.settings import COMMUNICATION, RaySettings, read_ray, wanted

RayPlan: TypeAlias = SystemPlan[RaySettings]

NO_CLUSTER = "no cluster: this process does it all"


def plan_run(
    input_cfg: SystemConfig,
    arguments: RunArguments,
    *,
    overrides: Sequence[str] = (),
    exp_name: str | None = None,
    workers: int | None = None,
    address: str | None = None,
    source: str | None = None,
    resumes: bool = False,
) -> RayPlan:
    """Return what a run is made from; nothing is written or started. Raises ConfigError with the faults."""
    # What the options of the command line stand for.
    options = {"collect.workers": workers, "address": address}
    asked = [f"system.ray.{key}={value}" for key, value in options.items() if value is not None]
    return plan_system(
        input_cfg, arguments, read=_read, overrides=[*overrides, *asked], exp_name=exp_name, source=source,
        resumes=resumes,
    )  # fmt: skip


def _read(
    system: Mapping[str, Any], cfg: FrozenConfig, source: str, overrides: Mapping[str, Override]
) -> tuple[RaySettings, dict[str, Any]]:
    settings = read_ray(system, cfg, source=source, overrides=overrides)
    saved = asdict(settings)
    # As it was given: what follows from the policy and the number of workers follows anew where they are others.
    saved["collect"]["comm"] = (system.get("ray") or {}).get("collect", {}).get("comm")
    return settings, {"ray": saved}


def described(plan: RayPlan, where: str) -> list[str]:
    """Return lines that say what of a run is where; `where` is what its workers run on."""
    collect, grad, update = plan.settings.collect, plan.settings.grad, plan.settings.update
    envs = plan.cfg.env.collector_env_num
    lines = [f"collect     in this process, in {envs} envs"]
    if collect.workers:
        ahead = "" if collect.max_policy_lag is None else f", at most {collect.max_policy_lag} updates behind"
        if collect.fraction_samples < 1:
            part, done = f"{collect.fraction_samples:.0%}", f"{collect.fraction_workers:.0%}"
            ahead = f", ended at {part} of the rows once {done} of the workers are done"
        workers = _number(collect.workers, "worker") + (" for each gradient worker" if grad.workers > 1 else "")
        lines = [f"collect     {workers}, of {envs} envs each, {COMMUNICATION[collect.comm or 'sync']}{ahead}"]
    kept = "batch" if plan.cfg.policy.on_policy else "replay buffer"
    where_kept = f"each with a {kept} of its own" if grad.workers > 1 else f"which holds the {kept}"
    if not collect.workers and grad.workers > 1:
        lines = [f"collect     in each gradient worker, in {envs} envs"]
    at = "in this process" if grad.workers < 2 else f"{grad.workers} workers, {COMMUNICATION[grad.comm]}"
    applied = "by all of them alike" if update.decentralized else "in this process"
    lines.append(f"gradients   {at}, {where_kept}; applied {applied}")
    return [*lines, f"runs on     {where}"]


def _number(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


def needs_of(settings: RaySettings) -> list[Need]:
    """Return what the workers of a run ask a cluster for; empty if there are no remote ones."""
    parents = settings.grad.workers if settings.grad.workers > 1 else 0
    return wanted(settings, settings.collect.workers, parents)
