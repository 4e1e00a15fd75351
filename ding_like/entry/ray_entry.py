"""Train from a config with collectors, and where wanted gradient workers, on Ray."""

from __future__ import annotations

import logging
import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ding_like.comm.ray.actors import load_ray
from ding_like.comm.ray.cluster import ClusterWatch, Need, RayCluster, open_cluster, plan_here, plan_on_cluster
from ding_like.comm.workers.failures import FAILURES_FILE, FailureLog
from ding_like.entry.training import NO_LIMIT, Plan, RunArguments, SystemInput, TrainingMode, make_plan, number
from ding_like.pipeline.components import Components
from ding_like.pipeline.ray.scheme import ray_runner
from ding_like.pipeline.rows import RemoteCollectors
from ding_like.pipeline.scheme_parts import build_driver
from ding_like.pipeline.settings import COMMUNICATION, RaySettings, read_ray
from ding_like.pipeline.training_loop import MakeRunner
from ding_like.policy import Policy
from ding_like.utils.files import RunFolder
from ding_like.utils.last_words import last_words
from ding_like.utils.log import shown_as_by_the_command

logger = logging.getLogger(__name__)

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
    mode = RayMode.of(
        input_cfg, arguments, overrides=overrides, exp_name=exp_name, load_path=load_path, workers=workers,
        address=address,
    )  # fmt: skip
    return mode.train().policy


class RayMode(TrainingMode[RaySettings]):
    """Run whose collectors, and where wanted gradient workers, are on Ray."""

    read = staticmethod(read_ray)

    @classmethod
    def of(
        cls, input_cfg: SystemInput | None, arguments: RunArguments, *, overrides: Sequence[str] = (),
        workers: int | None = None, address: str | None = None, **given: Any,
    ) -> RayMode:  # fmt: skip
        """Return the planned run; `workers` and `address` stand in place of the config's.

        The rows are saved with the driver's parts: a resumed run may have other workers, and another cluster.
        """
        options = {"collect.workers": workers, "address": address}
        overrides = [*overrides, *(f"system.ray.{key}={value}" for key, value in options.items() if value is not None)]
        plan: Plan[RaySettings] = make_plan(input_cfg, arguments, read_ray, overrides=overrides, **given)
        # As it was given: what follows from the policy and the number of workers follows anew where they are others.
        assert plan.arguments.system is not None, "make_plan saves the settings"
        plan.arguments.system["ray"]["collect"]["comm"] = (plan.given.get("ray") or {}).get("collect", {}).get("comm")
        if plan.resumes:
            before, now = read_ray(arguments.system or {}, plan.cfg), plan.settings
            changes = [("collectors", before.collect.workers, now.collect.workers)]
            for name, old, new in (*changes, ("address", before.address, now.address)):
                if old != new:
                    logger.info("%s: %s, where the run had %s", name, new or "none", old or "none")
        return cls(plan)

    def __init__(self, plan: Plan[RaySettings]) -> None:
        super().__init__(plan)
        grad = plan.settings.grad.workers
        # What the workers ask a cluster for; empty if there are no remote ones.
        self.needs: list[Need] = plan.settings.needs(plan.settings.collect.workers, grad if grad > 1 else 0)
        self._place = _Place("no cluster: this process does it all")

    def dry_run(self) -> tuple[list[str], bool]:
        """Return (lines that describe what would run where, wanted and available, whether it fits).

        A cluster at an address is asked what it has; raises as a run does where it cannot be had.
        """
        address = self.plan.settings.address
        if not self.needs:
            return super().dry_run()
        load_ray()  # raises the error that names what to install
        if address is None:
            self._place, found = _Place("a Ray cluster of its own, on this machine"), plan_here(self.needs)
        else:
            self._place = _Place(f"Ray at {address}")
            with RayCluster(address, allow_open=self.plan.settings.allow_open):
                found = plan_on_cluster(self.needs)
        return [*super().dry_run()[0], *found.table.splitlines()], found.fits

    @contextmanager
    def opened(self, folder: RunFolder) -> Iterator[None]:
        """Open the cluster before the folder is made, and keep the workers' logs where the run fails."""
        with ExitStack() as opened:
            if self.needs:
                self._place = opened.enter_context(_on_ray(self.needs, self.plan.settings))
            self.plan = self.plan.claimed(folder)
            exp_name = self.plan.cfg.exp_name
            if self._place.watch is not None:
                opened.enter_context(last_words(_ENDED.format(go_on=shlex.join(["ding", "--resume", exp_name]))))
            if self._place.logs is not None:
                opened.enter_context(_keep_logs(self._place.logs, Path(exp_name) / "log" / "ray"))
            yield

    def build(self) -> Components:
        """Return the components of the driver, which collects where there are no remote collectors."""
        cfg, run, settings, watch = self.plan.cfg, self.plan.arguments, self.plan.settings, self._place.watch
        parts = build_driver(
            cfg, seed=run.seed, dynamic_seed=run.dynamic_seed, collects=settings.collects_here,
            device=settings.update.device,
        )  # fmt: skip
        if watch is not None and isinstance(parts.collector, RemoteCollectors):
            parts.collector.beside = lambda: watch.store().numbers()
        return parts

    def make_runner(self, parts: Components) -> MakeRunner:
        """Return the factory of the runner, which starts the workers."""
        cfg, run, log = self.plan.cfg, self.plan.arguments, FailureLog(Path(self.plan.cfg.exp_name) / FAILURES_FILE)
        return ray_runner(
            cfg, parts, self.plan.settings, seed=run.seed, log=log, dynamic_seed=run.dynamic_seed,
            watch=self._place.watch,
        )  # fmt: skip

    def lines(self) -> list[str]:
        """Return the lines about who collects, who computes gradients, and on what."""
        collect, grad, update = self.plan.settings.collect, self.plan.settings.grad, self.plan.settings.update
        envs = self.plan.cfg.env.collector_env_num
        lines = [f"collect     in this process, in {envs} envs"]
        if collect.workers:
            ahead = "" if collect.max_policy_lag is None else f", at most {collect.max_policy_lag} updates behind"
            if collect.fraction_samples < 1:
                part, done = f"{collect.fraction_samples:.0%}", f"{collect.fraction_workers:.0%}"
                ahead = f", ended at {part} of the rows once {done} of the workers are done"
            workers = number(collect.workers, "worker") + (" for each gradient worker" if grad.workers > 1 else "")
            lines = [f"collect     {workers}, of {envs} envs each, {COMMUNICATION[collect.comm or 'sync']}{ahead}"]
        elif grad.workers > 1:
            lines = [f"collect     in each gradient worker, in {envs} envs"]
        kept = "batch" if self.plan.cfg.policy.on_policy else "replay buffer"
        where_kept = f"each with a {kept} of its own" if grad.workers > 1 else f"which holds the {kept}"
        at = "in this process" if grad.workers < 2 else f"{grad.workers} workers, {COMMUNICATION[grad.comm]}"
        applied = "by all of them alike" if update.decentralized else "in this process"
        lines.append(f"gradients   {at}, {where_kept}; applied {applied}")
        return [*lines, f"runs on     {self._place.words}"]


class _Place(NamedTuple):
    """Place that a run's workers run on."""

    words: str  # for the console
    logs: Path | None = None  # folder of what the workers wrote, if it goes with the cluster
    watch: ClusterWatch | None = None


@contextmanager
def _on_ray(needs: Sequence[Need], settings: RaySettings) -> Iterator[_Place]:
    """Open a cluster, see that the workers fit on it, and close it when the block ends."""
    cluster = open_cluster(needs, settings.address, allow_open=settings.allow_open)
    if cluster is None:
        yield _Place("the Ray cluster that this process is connected to")
        return
    with cluster, ClusterWatch(cluster) as watch:
        words = f"Ray at {cluster.address}, {'started for this run' if cluster.is_own else 'which stays'}"
        yield _Place(words, cluster.folder, watch)


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
