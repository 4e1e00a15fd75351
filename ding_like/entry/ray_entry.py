"""Train from a config with collectors, and where wanted gradient workers, on Ray."""

from __future__ import annotations

import logging
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from ding_like.comm.ray.actors import load_ray
from ding_like.comm.ray.cluster import ClusterWatch, RayCluster, open_cluster
from ding_like.comm.ray.needs import Need, plan_here, plan_on_cluster
from ding_like.comm.workers.failures import FAILURES_FILE, FailureLog
from ding_like.config import FrozenConfig
from ding_like.config.override import Override
from ding_like.entry.plan import NO_LIMIT, Plan, RunArguments, SystemInput, number, plan_system
from ding_like.entry.serial_entry import clear_errors, run_scheme
from ding_like.pipeline.learner_side import build_driver
from ding_like.pipeline.process import training_process
from ding_like.pipeline.ray.runner import ray_runner
from ding_like.pipeline.ray.settings import COMMUNICATION, RaySettings, collects_here, read_ray, wanted
from ding_like.pipeline.remote_collectors import RemoteCollectors
from ding_like.policy import Policy
from ding_like.utils.last_words import last_words
from ding_like.utils.log import shown_as_by_the_command
from ding_like.utils.run_folder import RunFolder

logger = logging.getLogger(__name__)

RayPlan: TypeAlias = Plan[RaySettings]

NO_CLUSTER = "no cluster: this process does it all"

_ENDED = (
    "ERROR: the run's process was killed, or Ray ended it because the cluster was lost. "
    "From the newest saved point, if there is one, it goes on with  {go_on}"
)


@shown_as_by_the_command()
def ray_pipeline(
    input_cfg: SystemInput,
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
) -> Policy:
    """Train with workers on Ray until a limit or `env.stop_value` is reached, and return the policy.

    A serial config runs as it is; `system_config['ray']` says who collects, computes gradients and applies them
    (docs/ray.md). `workers` and `address` stand in place of its `collect.workers` and `address`: without an address a
    cluster is started on this machine, and ended with the run. `overrides` are `section.key=value` strings, also
    `system.ray.key=value`; `load_path` is a checkpoint to start from. A connection that this process has to Ray is
    used, and stays. Raises ConfigError with every fault of the config at once, CommError where the cluster cannot be
    had, and TrainingError with its cause where workers fail too often.
    """
    arguments = RunArguments("ray", seed, max_train_iter, max_env_step, dynamic_seed)
    plan = plan_run(
        input_cfg, arguments, overrides=overrides, exp_name=exp_name, load_path=load_path, workers=workers,
        address=address,
    )  # fmt: skip
    return _run(plan)


def resume_ray(
    exp_name: str, arguments: RunArguments, *, workers: int | None = None, address: str | None = None
) -> Policy:
    """Resume a run from its newest valid saved point, by the `arguments` saved with it; see `resume_pipeline`.

    The rows are saved with the driver's parts: there may be other `workers` than before, and another cluster.
    """
    plan = plan_run(None, arguments, exp_name=exp_name, workers=workers, address=address)
    before, now = read_ray(arguments.system or {}, plan.cfg), plan.settings
    for name, old, new in (
        ("collectors", before.collect.workers, now.collect.workers),
        ("address", before.address, now.address),
    ):
        if old != new:
            logger.info("%s: %s, where the run had %s", name, new or "none", old or "none")
    return _run(plan)


def plan_run(
    input_cfg: SystemInput | None,
    arguments: RunArguments,
    *,
    overrides: Sequence[str] = (),
    workers: int | None = None,
    address: str | None = None,
    **more: Any,  # of plan_system
) -> RayPlan:
    """Return the plan of a run, see `plan_system`; `workers` and `address` stand in place of the config's."""
    options = {"collect.workers": workers, "address": address}
    overrides = [*overrides, *(f"system.ray.{key}={value}" for key, value in options.items() if value is not None)]
    given: dict[str, Any] = {}

    def read(system: Mapping[str, Any], cfg: FrozenConfig, source: str, applied: Mapping[str, Override]) -> RaySettings:
        given.update(system.get("ray") or {})
        return read_ray(system, cfg, source=source, overrides=applied)

    plan = plan_system(input_cfg, arguments, read, overrides=overrides, **more)
    # As it was given: what follows from the policy and the number of workers follows anew where they are others.
    assert plan.arguments.system is not None, "plan_system saves the settings"
    plan.arguments.system["ray"]["collect"]["comm"] = given.get("collect", {}).get("comm")
    return plan


def dry_run(
    input_cfg: SystemInput,
    seed: int = 0,
    *,
    overrides: Sequence[str] = (),
    exp_name: str | None = None,
    workers: int | None = None,
    address: str | None = None,
) -> tuple[list[str], bool]:
    """Return (lines that say what would run where, wanted and available, whether it fits); nothing is started.

    Raises as `ray_pipeline` for what cannot be had: a cluster at an address is asked what it has.
    """
    plan = plan_run(
        input_cfg, RunArguments("ray", seed), overrides=overrides, exp_name=exp_name, workers=workers, address=address
    )
    settings, needs = plan.settings, needs_of(plan.settings)
    lines = [plan.line()]
    if not needs:
        return [*lines, *described(plan, NO_CLUSTER)], True
    load_ray()  # says what to install
    if settings.address is None:
        where = "a Ray cluster of its own, on this machine"
        found = plan_here(needs)
    else:
        where = f"Ray at {settings.address}"
        with RayCluster(settings.address, allow_open=settings.allow_open):
            found = plan_on_cluster(needs)
    return [*lines, *described(plan, where), *found.table.splitlines()], found.fits


def _run(plan: RayPlan) -> Policy:
    """Train to the end with workers on a cluster that is opened for it; return the policy."""
    with clear_errors(), RunFolder() as folder, ExitStack() as opened:
        place = opened.enter_context(_on_ray(plan.settings)) if needs_of(plan.settings) else Place(NO_CLUSTER)
        plan = plan.claimed(folder)
        if place.watch is not None:
            opened.enter_context(last_words(_ENDED.format(go_on=shlex.join(["ding", "--resume", plan.cfg.exp_name]))))
        if place.logs is not None:
            opened.enter_context(_keep_logs(place.logs, Path(plan.cfg.exp_name) / "log" / "ray"))
        with training_process():
            return _train(plan, place, on_begin=folder.keep)


class Place(NamedTuple):
    """Place that a run's workers run on."""

    words: str  # for the console
    logs: Path | None = None  # folder of what the workers wrote, if it goes with the cluster
    watch: ClusterWatch | None = None


@contextmanager
def _on_ray(settings: RaySettings) -> Iterator[Place]:
    """Open a cluster, see that the workers fit on it, and close it when the block ends."""
    cluster = open_cluster(needs_of(settings), settings.address, allow_open=settings.allow_open)
    if cluster is None:
        yield Place("the Ray cluster that this process is connected to")
        return
    with cluster, ClusterWatch(cluster) as watch:
        words = f"Ray at {cluster.address}, {'started for this run' if cluster.is_own else 'which stays'}"
        yield Place(words, cluster.folder, watch)


@contextmanager
def _keep_logs(cluster: Path, folder: Path) -> Iterator[None]:
    """Copy what an own cluster's workers wrote into the run's folder, if the block ends by an error."""
    try:
        yield
    except Exception:  # whatever ended the run is raised again
        logs = [path for path in cluster.glob("r/session_2*/logs/worker-*") if path.stat().st_size]
        try:
            for path in logs:
                folder.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, folder / path.name)
            if logs:
                logger.info("what the workers wrote is in %s/", folder)
        except OSError as fault:
            logger.info("what the workers wrote is lost: %s", fault)
        raise


def _train(plan: RayPlan, place: Place, *, on_begin: Callable[[], None]) -> Policy:
    cfg, arguments = plan.cfg, plan.arguments
    parts = build_driver(
        cfg,
        seed=arguments.seed,
        dynamic_seed=arguments.dynamic_seed,
        collects=collects_here(plan.settings),
        device=plan.settings.update.device,
    )
    with closing(parts):
        if place.watch is not None and isinstance(parts.collector, RemoteCollectors):
            watch = place.watch
            parts.collector.beside = lambda: watch.store().numbers()
        make_runner = ray_runner(
            cfg, parts, plan.settings, seed=arguments.seed, log=FailureLog(Path(cfg.exp_name) / FAILURES_FILE),
            dynamic_seed=arguments.dynamic_seed, watch=place.watch,
        )  # fmt: skip
        run_scheme(plan, parts, make_runner, lines=described(plan, place.words), on_begin=on_begin)
    return parts.policy


def described(plan: RayPlan, where: str) -> list[str]:
    """Return the lines about who collects and who computes gradients; `where` is what the workers run on."""
    collect, grad, update = plan.settings.collect, plan.settings.grad, plan.settings.update
    envs = plan.cfg.env.collector_env_num
    lines = [f"collect     in this process, in {envs} envs"]
    if collect.workers:
        ahead = "" if collect.max_policy_lag is None else f", at most {collect.max_policy_lag} updates behind"
        if collect.fraction_samples < 1:
            part, done = f"{collect.fraction_samples:.0%}", f"{collect.fraction_workers:.0%}"
            ahead = f", ended at {part} of the rows once {done} of the workers are done"
        workers = number(collect.workers, "worker") + (" for each gradient worker" if grad.workers > 1 else "")
        lines = [f"collect     {workers}, of {envs} envs each, {COMMUNICATION[collect.comm or 'sync']}{ahead}"]
    kept = "batch" if plan.cfg.policy.on_policy else "replay buffer"
    where_kept = f"each with a {kept} of its own" if grad.workers > 1 else f"which holds the {kept}"
    if not collect.workers and grad.workers > 1:
        lines = [f"collect     in each gradient worker, in {envs} envs"]
    at = "in this process" if grad.workers < 2 else f"{grad.workers} workers, {COMMUNICATION[grad.comm]}"
    applied = "by all of them alike" if update.decentralized else "in this process"
    lines.append(f"gradients   {at}, {where_kept}; applied {applied}")
    return [*lines, f"runs on     {where}"]


def needs_of(settings: RaySettings) -> list[Need]:
    """Return what the workers of a run ask a cluster for; empty if there are no remote ones."""
    parents = settings.grad.workers if settings.grad.workers > 1 else 0
    return wanted(settings, settings.collect.workers, parents)
