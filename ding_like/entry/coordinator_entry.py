"""Run a coordinator: with workers on this machine, or for external workers that dial in."""

from __future__ import annotations

import json
import logging
import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

from ding_like.agent.description import write_description
from ding_like.agent.video import filmable, write_pictures
from ding_like.config import compile_config, read_config, to_plain
from ding_like.entry.agents import eval_mode_of
from ding_like.entry.plan import NO_LIMIT, check_nstep
from ding_like.envs import EnvFactory, get_vec_env_setting
from ding_like.errors import CheckpointError, ConfigError, TrainingError
from ding_like.pipeline.parallel.children import Children
from ding_like.pipeline.parallel.coordinator import Coordinator, create_coordinator
from ding_like.pipeline.parallel.coordinator_run import CoordinatorRun
from ding_like.pipeline.parallel.settings import SystemConfig, read_system, serial_parts, system_with_coordinator
from ding_like.pipeline.process import StopSignal
from ding_like.pipeline.record import RunResult, origin_of
from ding_like.pipeline.self_play import is_game
from ding_like.report.progress import Limits
from ding_like.report.run_console import RunConsole
from ding_like.report.summary import closing_lines, env_name, version_line
from ding_like.utils.files import atomic_write, when_there_is_room
from ding_like.utils.machine import OWN_HOST, check_known, is_loopback, reachable_url
from ding_like.utils.run_folder import RunFolder
from ding_like.utils.trackers import tracked

logger = logging.getLogger(__name__)

_LEAVE_S = 15.0  # for workers to hear that the run is over: some heartbeats, or the rest of an evaluation
_STOPPING = "stopping: saving, then ending the workers of this machine; a second Ctrl-C or signal ends all at once"


ARGUMENTS_FILE = "run_arguments.json"


@dataclass(frozen=True)
class CoordinatedArguments:
    """Arguments of a run of mode parallel or dist beside its config; plain data, saved for `ding --resume`."""

    mode: Literal["parallel", "dist"]
    seed: int
    max_train_iter: int = NO_LIMIT
    max_env_step: int = NO_LIMIT
    system: dict[str, Any] = field(default_factory=dict)  # the `system_config` that was given
    parts: dict[str, Any] = field(default_factory=dict)  # of mode parallel: the workers' own classes
    source: str = ""  # the config's file, if it had one
    options: tuple[str, ...] = ()  # of mode dist: by which external workers join
    key_file: str | None = None  # of mode dist, if one was given
    files: str | None = None  # of mode parallel: the folder of rows and weights that was made for the run

    def save(self, exp_name: str, url: str) -> None:
        """Write the arguments and the address that external workers know into the run's folder; wait on a full disk."""
        system = self.system
        if self.mode == "dist":
            host, port = _address(url)
            at = {"host": host, "port": int(port)}
            system = {**system, "coordinator": {**(system.get("coordinator") or {}), **at}}

        def write() -> None:
            with atomic_write(Path(exp_name) / ARGUMENTS_FILE) as file:
                file.write(json.dumps(asdict(replace(self, system=system)), indent=1).encode())

        when_there_is_room(write, report=logger.warning)

    @classmethod
    def read(cls, exp_name: str) -> CoordinatedArguments:
        """Return the arguments that a run was started with. Raises CheckpointError for a folder without them."""
        path = Path(exp_name) / ARGUMENTS_FILE
        try:
            found: Any = json.loads(path.read_bytes())
            return cls(**{**found, "options": tuple(found["options"])})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{path} cannot be read ({error}), so it is not known what the run was started with. A coordinator "
                "continues when it is started in the same folder, with the options that it had: ding -m dist -M "
                f"coordinator -c FILE --exp-name {exp_name} policy.learn.resume_training=True."
            ) from error

    @property
    def limit_options(self) -> dict[str, list[str]]:
        """Options of the command line for the limits, without those that there are not."""
        limits = {"--env-step": self.max_env_step, "--train-iter": self.max_train_iter}
        return {name: [] if limit == NO_LIMIT else [name, str(limit)] for name, limit in limits.items()}


class CoordinatorPlan(NamedTuple):
    """Plan of a run with a coordinator."""

    cfg: Any  # compiled
    system: SystemConfig
    arguments: CoordinatedArguments
    run_folder: RunFolder  # that holds the run's folder
    key_file: Path
    own: tuple[Path, ...] = ()  # files and folders that are deleted when the run is over

    @property
    def limits(self) -> Limits:
        """Limits at which the run ends."""
        return Limits(self.arguments.max_env_step, self.arguments.max_train_iter, self.cfg.env.stop_value)


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
    arguments = CoordinatedArguments("dist", seed, max_train_iter, max_env_step)
    with RunFolder() as run_folder:
        return run_coordinator(
            plan_run(
                config, run_folder, arguments, host=host, port=port, key_file=key_file, overrides=overrides,
                exp_name=exp_name,
            )
        )  # fmt: skip


def plan_run(
    config: str | Path,
    run_folder: RunFolder,
    arguments: CoordinatedArguments,
    *,
    host: str | None = None,
    port: int | None = None,
    key_file: str | Path | None,
    overrides: Sequence[str],
    exp_name: str | None,
) -> CoordinatorPlan:
    """Return the plan of a run of external workers; see `launch_coordinator`."""
    file = read_config(config)
    given = system_with_coordinator(file.create_config, file.system_config)
    asked = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    given["coordinator"] = {**(given.get("coordinator") or {}), **asked}
    _check_keys(key_file, str(given["coordinator"].get("host") or "127.0.0.1"))
    main, create = serial_parts(file.main_config, file.create_config)
    seed = arguments.seed
    cfg = compile_config(
        main, create, seed=seed, overrides=overrides, source=str(config), exp_name=exp_name, folder=run_folder
    )
    check_nstep(cfg, arguments.max_env_step)
    arguments = replace(
        arguments,
        system=to_plain(given),
        options=("-c", str(config), "-s", str(seed), *overrides),
        source=str(config),
        key_file=None if key_file is None else str(key_file),
    )
    return plan_of(cfg, arguments, run_folder)


def plan_of(cfg: Any, arguments: CoordinatedArguments, run_folder: RunFolder) -> CoordinatorPlan:
    """Return the plan of a run of external workers, from the arguments that it was started with."""
    system = read_system(arguments.system, cfg, in_memory=False)
    keys = Path(cfg.exp_name) / "keys.json"
    own = [path for path in (None if arguments.key_file else keys, system.own_folder) if path is not None]
    return CoordinatorPlan(cfg, system, arguments, run_folder, Path(arguments.key_file or keys), tuple(own))


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


def run_coordinator(
    plan: CoordinatorPlan, start_workers: Callable[[Coordinator, Children], None] | None = None
) -> RunResult:
    """Serve and watch a run to its end.

    `start_workers` is called when the port is open; without it workers dial in, by commands that are logged. The first
    SIGINT or SIGTERM ends the run with its state saved. Raises TrainingError with the cause if the run fails.
    """
    cfg, arguments = plan.cfg, plan.arguments
    coordinator = make_coordinator(plan)
    try:
        coordinator.start()
        arguments.save(cfg.exp_name, coordinator.url)
        run = CoordinatorRun(cfg, coordinator, origin=origin_of(cfg, mode="parallel", source=arguments.source))
        with (
            Children(Path(cfg.exp_name) / "log" / "workers", lost=coordinator.lost_worker) as children,
            RunConsole(cfg.exp_name, plan.limits, opening=opening(plan, reachable_url(coordinator.url))) as console,
            StopSignal(lambda: console.event(_STOPPING)) as signals,
            tracked(cfg) as trackers,
        ):
            trackers.follow()
            if start_workers is None:
                _log_join_commands(plan, coordinator)
            else:
                start_workers(coordinator, children)

            def check() -> None:
                # Also where it is interrupted: the message then names the folder.
                if coordinator.core.env_step or signals.received is not None:
                    plan.run_folder.keep()
                if signals.received is not None:
                    coordinator.give_up()
                    _log_resume_command(plan, coordinator)
                    signals.leave()
                for line in children.check():
                    console.event(line)

            try:
                result = run.watch(console, check=check)
            except TrainingError:
                if arguments.mode == "dist":  # external workers are to be notified
                    coordinator.wait_for_workers(_LEAVE_S)
                raise
            _write_pictures(cfg, arguments.seed)
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


def make_coordinator(plan: CoordinatorPlan) -> Coordinator:
    """Return the coordinator of a plan. Raises ConfigError for a run that is over."""
    cfg = plan.cfg
    coordinator = create_coordinator(
        {
            "main": cfg,
            "system": plan.system,
            "seed": plan.arguments.seed,
            "max_env_step": plan.arguments.max_env_step,
            "key_file": plan.key_file,
            "lock": plan.run_folder.lock,
        }
    )
    if coordinator.system_shutdown_flag:
        why = "" if coordinator.core.failure is None else f": {coordinator.core.failure}"
        if not why and not (Path(cfg.exp_name) / "result.json").is_file():
            why = ", and its coordinator ended before it wrote the result"
        coordinator.close()
        raise ConfigError(
            f"the run in {cfg.exp_name}/ is over{why}. To start another, give a new --exp-name or leave "
            "policy.learn.resume_training out."
        )
    write_description(cfg)
    return coordinator


def _log_join_commands(plan: CoordinatorPlan, coordinator: Coordinator) -> None:
    arguments = plan.arguments
    common = ["--coordinator", reachable_url(coordinator.url), "--key-file", str(plan.key_file), *arguments.options]
    for module, limit in (("learner", arguments.limit_options["--train-iter"]), ("collector", [])):
        logger.info("join with   %s", shlex.join(["ding", "-m", "dist", "-M", module, *common, *limit]))


def _log_resume_command(plan: CoordinatorPlan, coordinator: Coordinator) -> None:
    arguments, exp_name = plan.arguments, plan.cfg.exp_name
    if arguments.mode == "parallel":
        logger.info("interrupted: go on with  %s", shlex.join(["ding", "--resume", exp_name]))
        return
    host, port = _address(coordinator.url)
    words = ["ding", "-m", "dist", "-M", "coordinator", *arguments.options, "--exp-name", exp_name]
    words += ["--host", host, "--port", port]
    words += [] if arguments.key_file is None else ["--key-file", arguments.key_file]
    words += [word for limit in arguments.limit_options.values() for word in limit]
    words += [word for word in ["policy.learn.resume_training=True"] if word not in words]
    logger.info("interrupted: what is known is in %s. Workers look for the coordinator a while;", exp_name)
    logger.info("go on with  %s", shlex.join(words))


def _address(url: str) -> tuple[str, str]:
    """Return host and port of a URL."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    return host.strip("[]"), port


def _write_pictures(cfg: Any, seed: int) -> None:
    env_fn, _, env_cfgs = get_vec_env_setting(cfg.env, collect=False)
    make_env = filmable(env_cfgs[0], env_fn) if is_game(cfg) else EnvFactory(env_cfgs[0], env_fn)
    mode = eval_mode_of(cfg, make_env, None)
    write_pictures(cfg, SimpleNamespace(eval_mode=mode), seed=seed)


def opening(plan: CoordinatorPlan, url: str) -> list[str]:
    """Return the lines with which the console begins."""
    cfg, system = plan.cfg, plan.system
    learners = "1 learner" if system.num_learners == 1 else f"{system.num_learners} learners as one"
    is_dist = plan.arguments.mode == "dist"
    collectors = "collectors" if is_dist else f"{system.num_collectors} collectors"
    workers = f"{learners}, {collectors} of {cfg.env.collector_env_num} envs{' that dial in' if is_dist else ''}"
    return [
        version_line(),
        f"experiment  {cfg.exp_name}/",
        f"env         {env_name(cfg.env)}",
        f"policy      {cfg.policy.type}  seed {cfg.seed}",
        f"workers     {workers}; segments of {system.segment_rows} rows",
        f"coordinator {url}  keys {plan.key_file}",
        f"until       {plan.limits.describe()}",
    ]
