"""Run a coordinator: with workers on this machine, or for workers that dial in from anywhere."""

from __future__ import annotations

import logging
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from ding_like.agent.description import write_description
from ding_like.agent.pictures import write_pictures
from ding_like.agent.video import filmable
from ding_like.config import compile_config, read_config, to_plain
from ding_like.entry.enjoy import eval_mode_of
from ding_like.entry.limits import check_nstep
from ding_like.entry.saved_arguments import CoordinatedArguments
from ding_like.entry.serial_entry import NO_LIMIT
from ding_like.envs import EnvFactory, get_vec_env_setting
from ding_like.errors import ConfigError, TrainingError
from ding_like.pipeline.interrupt import StopSignal
from ding_like.pipeline.parallel.children import Children
from ding_like.pipeline.parallel.coordinator import Coordinator, create_coordinator
from ding_like.pipeline.parallel.coordinator_run import CoordinatorRun
from ding_like.pipeline.parallel.settings import SystemConfig, read_system, serial_parts, system_with_coordinator
from ding_like.pipeline.roles.record import RunResult, origin_of
from ding_like.pipeline.self_play import is_game
from ding_like.report.progress import Limits
from ding_like.report.run_console import RunConsole
from ding_like.report.summary import closing_lines, env_name, version_line
from ding_like.utils.addresses import OWN_HOST, check_known, is_loopback, reachable_url
from ding_like.utils.run_folder import RunFolder
from ding_like.utils.trackers import tracked

logger = logging.getLogger(__name__)

_LEAVE_S = 15.0  # for workers to hear that the run is over: some heartbeats, or the rest of an evaluation
_STOPPING = "stopping: saving, then ending the workers of this machine; a second Ctrl-C or signal ends all at once"


class Plan(NamedTuple):
    """Hold what a run with a coordinator is made from."""

    cfg: Any  # compiled
    system: SystemConfig
    seed: int
    max_env_step: int
    max_train_iter: int
    key_file: Path
    # Where workers dial in: the options by which the coordinator was started, and what goes when the run is over.
    options: tuple[str, ...] = ()
    own: tuple[Path, ...] = ()
    source: str = ""  # the config's file, if it has one
    arguments: CoordinatedArguments | None = None  # to be saved, for `ding --resume`
    run_folder: RunFolder | None = None  # that holds the run's folder


def launch_coordinator(
    config: str | Path,
    *,
    seed: int = 0,
    host: str | None = None,
    port: int | None = None,
    key_file: str | Path | None = None,
    overrides: Sequence[str] = (),
    max_env_step: int = NO_LIMIT,
    max_train_iter: int = NO_LIMIT,
    exp_name: str | None = None,
) -> RunResult:
    """Coordinate collectors and a learner that dial in, until a limit or `env.stop_value` is reached.

    `host` and `port` go before those of the config. Without `key_file` keys are made in `{exp_name}/keys.json`, which
    is for workers of this machine: raises ConfigError for another host then. With `policy.learn.resume_training` a
    coordinator that was stopped goes on from its folder; data lie there too, if `system_config` names no other place.
    """
    asked = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    with RunFolder() as run_folder:
        plan = plan_run(
            config, seed=seed, asked=asked, key_file=key_file, overrides=overrides, max_env_step=max_env_step,
            max_train_iter=max_train_iter, exp_name=exp_name, run_folder=run_folder,
        )  # fmt: skip
        return run_for_those_who_join(plan)


def run_for_those_who_join(plan: Plan) -> RunResult:
    """Run a coordinator whose workers dial in; they are told how."""
    return run_coordinator(plan, lambda coordinator, children: _say_how_to_join(plan, coordinator))


def plan_run(
    config: str | Path,
    *,
    seed: int,
    asked: Mapping[str, Any],
    key_file: str | Path | None,
    overrides: Sequence[str],
    max_env_step: int = NO_LIMIT,
    max_train_iter: int = NO_LIMIT,
    exp_name: str | None = None,
    run_folder: RunFolder,
) -> Plan:
    """Return what a run of workers that dial in is made from; `asked` goes before the config's `coordinator`."""
    file = read_config(config)
    given = system_with_coordinator(file.create_config, file.system_config)
    given["coordinator"] = {**(given.get("coordinator") or {}), **asked}
    _check_keys(key_file, str(given["coordinator"].get("host") or "127.0.0.1"))
    main, create = serial_parts(file.main_config, file.create_config)
    cfg = compile_config(
        main, create, seed=seed, overrides=overrides, source=str(config), exp_name=exp_name, folder=run_folder
    )
    check_nstep(cfg, max_env_step)
    arguments = CoordinatedArguments(
        "dist",
        seed,
        max_train_iter,
        max_env_step,
        system=to_plain(given),
        options=("-c", str(config), "-s", str(seed), *overrides),
        source=str(config),
        key_file=None if key_file is None else str(key_file),
    )
    return plan_of(cfg, arguments, run_folder)


def plan_of(cfg: Any, arguments: CoordinatedArguments, run_folder: RunFolder) -> Plan:
    """Return what a run of workers that dial in is made from, of what it was started with."""
    system = read_system(arguments.system, cfg, in_memory=False)
    keys = Path(cfg.exp_name) / "keys.json"
    return Plan(
        cfg,
        system,
        arguments.seed,
        arguments.max_env_step,
        arguments.max_train_iter,
        Path(arguments.key_file or keys),
        arguments.options,
        tuple(each for each in (None if arguments.key_file else keys, system.own_folder) if each is not None),
        source=arguments.source,
        arguments=arguments,
        run_folder=run_folder,
    )


def _check_keys(key_file: str | Path | None, host: str) -> None:
    """Refuse a host that cannot be resolved, a key file that is not there, and a host of others without one."""
    check_known(host, "--host (coordinator.host of system_config)", OWN_HOST)
    if key_file is not None and not Path(key_file).is_file():
        raise ConfigError(f"there is no key file '{key_file}'; `ding keys {key_file}` makes one.")
    if key_file is None and not is_loopback(host):
        raise ConfigError(
            f"a coordinator at {host} can be reached from other machines: make keys with `ding keys FILE`, give them "
            "with --key-file FILE, and copy the file to the hosts of its workers."
        )


def run_coordinator(plan: Plan, start_workers: Callable[[Coordinator, Children], None]) -> RunResult:
    """Serve and watch a run to its end; `start_workers` is called when the port is open.

    The first SIGINT or SIGTERM ends it with its state saved. Raises TrainingError with the cause if the run fails.
    """
    cfg = plan.cfg
    limits = Limits(plan.max_env_step, plan.max_train_iter, cfg.env.stop_value)
    coordinator = make_coordinator(plan)
    try:
        check_that_it_goes_on(coordinator, cfg.exp_name)
        write_description(cfg)
        coordinator.start()
        _save_arguments(plan, coordinator)
        run = CoordinatorRun(cfg, coordinator, origin=origin_of(cfg, mode="parallel", source=plan.source))
        with (
            Children(Path(cfg.exp_name) / "log" / "workers", lost=coordinator.lost_worker) as children,
            RunConsole(cfg.exp_name, limits, opening=opening(plan, limits, reachable_url(coordinator.url))) as console,
            StopSignal(lambda: console.event(_STOPPING)) as signals,
            tracked(cfg) as trackers,
        ):
            trackers.follow()
            start_workers(coordinator, children)

            def check() -> None:
                # Also where it is interrupted: what is said then names the folder.
                if plan.run_folder is not None and (coordinator.core.env_step or signals.received is not None):
                    plan.run_folder.keep()
                if signals.received is not None:
                    coordinator.give_up()
                    _say_interrupted(plan, coordinator)
                    signals.leave()
                for line in children.check():
                    console.event(line)

            try:
                result = run.watch(console, check=check)
            except TrainingError:
                if plan.options:  # workers elsewhere are to hear of it
                    coordinator.wait_for_workers(_LEAVE_S)
                raise
            _write_pictures(cfg, plan.seed)
            left = coordinator.wait_for_workers(_LEAVE_S)
            if left:
                logger.warning("not all workers have left: %s", ", ".join(left))
            console.close_summary(closing_lines(cfg.exp_name, mode="parallel"))
        return result
    finally:
        is_done = coordinator.is_done
        coordinator.close()
        if is_done:
            for path in plan.own:
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def make_coordinator(plan: Plan) -> Coordinator:
    """Return the coordinator of a plan."""
    made = {"system": plan.system, "seed": plan.seed, "max_env_step": plan.max_env_step, "key_file": plan.key_file}
    lock = None if plan.run_folder is None else plan.run_folder.lock
    return create_coordinator({"main": plan.cfg, **made, "lock": lock})


def _save_arguments(plan: Plan, coordinator: Coordinator) -> None:
    """Save what the run goes on with after an interruption: for those who have joined, at the same address."""
    arguments = plan.arguments
    if arguments is None:
        return
    if arguments.mode == "dist":
        host, _, port = coordinator.url.removeprefix("http://").rpartition(":")
        at = {"host": host.strip("[]"), "port": int(port)}
        system = {**arguments.system, "coordinator": {**(arguments.system.get("coordinator") or {}), **at}}
        arguments = replace(arguments, system=system)
    arguments.save(plan.cfg.exp_name)


def check_that_it_goes_on(coordinator: Coordinator, exp_name: str) -> None:
    """Refuse to go on with a run that is over."""
    if not coordinator.system_shutdown_flag:
        return
    why = "" if coordinator.core.failure is None else f": {coordinator.core.failure}"
    if not why and not (Path(exp_name) / "result.json").is_file():
        why = ", and its coordinator ended before it wrote the result"
    raise ConfigError(
        f"the run in {exp_name}/ is over{why}. To start another, give a new --exp-name or leave "
        "policy.learn.resume_training out."
    )


def _say_how_to_join(plan: Plan, coordinator: Coordinator) -> None:
    common = ["--coordinator", reachable_url(coordinator.url), "--key-file", str(plan.key_file), *plan.options]
    limit = [] if plan.max_train_iter == NO_LIMIT else ["--train-iter", str(plan.max_train_iter)]
    logger.info("join with   %s", shlex.join(["ding", "-m", "dist", "-M", "learner", *common, *limit]))
    logger.info("join with   %s", shlex.join(["ding", "-m", "dist", "-M", "collector", *common]))


def _say_interrupted(plan: Plan, coordinator: Coordinator) -> None:
    if not plan.options:
        logger.info("interrupted: go on with  %s", shlex.join(["ding", "--resume", plan.cfg.exp_name]))
        return
    host, _, port = coordinator.url.removeprefix("http://").rpartition(":")
    words = ["ding", "-m", "dist", "-M", "coordinator", *plan.options, "--exp-name", plan.cfg.exp_name]
    words += ["--host", host.strip("[]"), "--port", port]
    words += [] if plan.key_file in plan.own else ["--key-file", str(plan.key_file)]
    words += [] if plan.max_env_step == NO_LIMIT else ["--env-step", str(plan.max_env_step)]
    words += [] if plan.max_train_iter == NO_LIMIT else ["--train-iter", str(plan.max_train_iter)]
    words += [word for word in ["policy.learn.resume_training=True"] if word not in words]
    logger.info("interrupted: what is known is in %s. Workers look for the coordinator a while;", plan.cfg.exp_name)
    logger.info("go on with  %s", shlex.join(words))


def _write_pictures(cfg: Any, seed: int) -> None:
    env_fn, _, env_cfgs = get_vec_env_setting(cfg.env, collect=False)
    make_env = filmable(env_cfgs[0], env_fn) if is_game(cfg) else EnvFactory(env_cfgs[0], env_fn)
    mode = eval_mode_of(cfg, make_env, None)
    write_pictures(cfg, SimpleNamespace(eval_mode=mode), seed=seed)


def opening(plan: Plan, limits: Limits, url: str) -> list[str]:
    cfg, system = plan.cfg, plan.system
    learners = "1 learner" if system.num_learners == 1 else f"{system.num_learners} learners as one"
    collectors = "collectors" if plan.options else f"{system.num_collectors} collectors"
    workers = f"{learners}, {collectors} of {cfg.env.collector_env_num} envs{' that dial in' if plan.options else ''}"
    return [
        version_line(),
        f"experiment  {cfg.exp_name}/",
        f"env         {env_name(cfg.env)}",
        f"policy      {cfg.policy.type}  seed {cfg.seed}",
        f"workers     {workers}; segments of {system.segment_rows} rows",
        f"coordinator {url}  keys {plan.key_file}",
        f"until       {limits.describe()}",
    ]
