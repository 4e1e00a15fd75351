"""Plan a Ray run: read and check its config, and say what will run where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from ding_like.comm.ray.needs import Need
from ding_like.config import FrozenConfig, compile_config, read_config, save_system, to_plain
from ding_like.config.override import take_overrides
from ding_like.config.report import Fault, config_error
from ding_like.config.tree import Tree
from ding_like.entry.learners import RunArguments
from ding_like.entry.serial_entry import InputConfig, limited
from ding_like.pipeline.ray.settings import RaySettings, read_ray

# A config file, its (main_config, create_config), or these and its system_config.
RayConfig = InputConfig | tuple[Any, Any, Any]

NO_CLUSTER = "no cluster: this process does it all"
_PATTERNS = {"sync": "synchronous", "async": "asynchronous"}


class RayPlan(NamedTuple):
    """Hold what a Ray run is made from, checked."""

    config: tuple[Any, Any]  # (main_config, create_config)
    source: str  # the file that they are from
    overrides: Sequence[str]  # of these
    exp_name: str | None  # that was asked for
    cfg: FrozenConfig  # compiled of them
    settings: RaySettings
    arguments: RunArguments
    given: Sequence[str]  # all overrides, as they were given


def plan_run(
    input_cfg: RayConfig,
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
    main, create, system, named = _read(input_cfg)
    source = source or named
    given = [*overrides, *_system_overrides(workers, address)]
    tree: Tree = {"system": to_plain(system or {})}
    faults: list[Fault] = []
    others, applied = take_overrides(given, tree, faults, section="system")
    if faults:
        raise config_error(faults, source, {})
    cfg = compile_config(
        main, create, seed=arguments.seed, overrides=others, source=source, exp_name=exp_name, save=False,
        renew_dir=not resumes,
    )  # fmt: skip
    settings = read_ray(tree["system"], cfg, source=source, overrides=applied)
    saved = asdict(settings)
    # As it was given: what follows from the policy and the number of workers follows anew where they are others.
    saved["collect"]["comm"] = (tree["system"].get("ray") or {}).get("collect", {}).get("comm")
    arguments = limited(cfg, arguments)._replace(system={"ray": saved})
    return RayPlan((main, create), source, others, exp_name, cfg, settings, arguments, given)


def _read(input_cfg: RayConfig) -> tuple[Any, Any, Any, str]:
    if isinstance(input_cfg, (str, Path)):
        return *read_config(input_cfg), str(input_cfg)
    main, create, *system = input_cfg
    return main, create, system[0] if system else None, "the given config"


def _system_overrides(workers: int | None, address: str | None) -> list[str]:
    """Return the overrides that the options of the command line stand for."""
    found = {"collect.workers": workers, "address": address}
    return [f"system.ray.{key}={value}" for key, value in found.items() if value is not None]


def claimed(plan: RayPlan) -> RayPlan:
    """Make the run's folder, and save its config there; return the plan with the config that says so."""
    main, create = plan.config
    cfg = compile_config(
        main, create, seed=plan.arguments.seed, overrides=plan.overrides, source=plan.source, exp_name=plan.exp_name,
        quiet=True,
    )  # fmt: skip
    save_system(cfg.exp_name, plan.arguments.system or {}, mode="ray")
    return plan._replace(cfg=cfg)


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
        workers, standby = _number(collect.workers, "worker"), _number(collect.standby, "standby")
        pattern = _PATTERNS[collect.comm or "sync"]
        lines = [f"collect     {workers} of {envs} envs each, {pattern}{ahead}; {standby}"]
    kept = "this batch" if plan.cfg.policy.on_policy else "the replay buffer"
    at = "in this process" if grad.workers < 2 else f"{grad.workers} workers, {_PATTERNS[grad.comm]}"
    applied = "by all of them alike" if update.decentralized else "in this process"
    lines.append(f"gradients   {at}; applied {applied}, which holds {kept}")
    return [*lines, f"runs on     {where}"]


def _number(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


def wanted(settings: RaySettings) -> list[Need]:
    """Return what the workers of a run ask a cluster for; empty where there are none elsewhere."""
    collect, grad = settings.collect, settings.grad
    gradient_workers = grad.workers if grad.workers > 1 else 0
    needs = [
        Need("collector", collect.workers, collect.resources),
        Need("standby", collect.standby if collect.workers else 0, collect.resources),
        Need("gradient worker", gradient_workers, grad.resources),
        Need("gradient standby", collect.standby if gradient_workers else 0, grad.resources),
    ]
    return [need for need in needs if need.number]
