"""Run a coordinator, for external workers that dial in."""

from __future__ import annotations

import atexit
import logging
import pprint
import shlex
import shutil
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from ding_like.agent.description import write_description
from ding_like.agent.video import filmable, write_pictures
from ding_like.config import FrozenConfig, compile_config, read_config, to_plain
from ding_like.entry.results import eval_mode_of
from ding_like.entry.serial_entry import check_cores, number_of_learners
from ding_like.entry.training import (
    NO_LIMIT,
    RunArguments,
    SystemInput,
    check_demonstrations,
    check_limits,
    check_nstep,
    check_own_mode,
    check_system,
    limit_words,
    read_given,
    refuse_in_child,
    refuse_to_resume,
)
from ding_like.envs import EnvFactory, get_vec_env_setting
from ding_like.errors import ConfigError, DingError, TrainingError
from ding_like.pipeline.checks import is_game
from ding_like.pipeline.parallel.comm_collector import BaseCommCollector
from ding_like.pipeline.parallel.comm_learner import BaseCommLearner
from ding_like.pipeline.parallel.coordinator import Coordinator, create_coordinator
from ding_like.pipeline.parallel.coordinator_run import Children, CoordinatorRun
from ding_like.pipeline.parallel.core.state import STATE_FILE, WORKERS_CONFIG, SavedRun
from ding_like.pipeline.parallel.settings import FILES, class_of, read_system, serial_parts, system_with_coordinator
from ding_like.pipeline.process import StopSignal
from ding_like.pipeline.record import RunResult, origin_of
from ding_like.report.run_console import Limits, RunConsole
from ding_like.report.summary import closing_lines, env_name, version_line
from ding_like.types import Config
from ding_like.utils.files import RunFolder, load_plan, retry, save_plan, when_there_is_room
from ding_like.utils.log import setup_console, shown_as_by_the_command
from ding_like.utils.processes import OWN_HOST, check_known, is_loopback, make_own_folder, reachable_url
from ding_like.utils.registries import COMM_COLLECTOR_REGISTRY, COMM_LEARNER_REGISTRY
from ding_like.utils.trackers import Tracked

logger = logging.getLogger(__name__)

_LEAVE_S = 15.0  # for workers to hear that the run is over: some heartbeats, or the rest of an evaluation
_STOPPING = "stopping: saving, then ending the workers of this machine; a second Ctrl-C or signal ends all at once"


ARGUMENTS_FILE, _FORMAT = "run_arguments.json", 1


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
    files: str | None = None  # the folder of rows and weights, if one was made for the run

    def save(self, exp_name: str, url: str) -> None:
        """Write the arguments and the address that external workers know into the run's folder; wait on a full disk."""
        system = self.system
        if self.mode == "dist":
            host, port = _address(url)
            at = {"host": host, "port": int(port)}
            system = {**system, "coordinator": {**(system.get("coordinator") or {}), **at}}

        write = partial(save_plan, Path(exp_name) / ARGUMENTS_FILE, replace(self, system=system), version=_FORMAT)
        when_there_is_room(write, report=logger.warning)

    @classmethod
    def read(cls, exp_name: str) -> CoordinatedArguments:
        """Return the arguments that a run was started with. Raises ConfigError for a folder without them."""
        path = Path(exp_name) / ARGUMENTS_FILE
        still = (
            "so it is not known what the run was started with. A coordinator continues when it is started in the "
            "same folder, with the options that it had: ding -m dist -M coordinator -c FILE --exp-name "
            f"{exp_name} policy.learn.resume_training=True."
        )
        found = load_plan(path, cls, version=_FORMAT, still=still)
        if found is None:
            raise ConfigError(f"{path} is missing, {still}")
        return found


def _read(
    config: SystemInput, arguments: CoordinatedArguments, *, overrides: Sequence[str], exp_name: str | None
) -> tuple[Callable[..., FrozenConfig], Config, CoordinatedArguments]:
    """Return (what compiles a config, its create_config, the arguments with its system part); nothing is written yet.

    Raises ConfigError for what is no config, and for limits that are no numbers of steps.
    """
    refuse_in_child()
    check_system(arguments.mode)
    check_limits(max_env_step=arguments.max_env_step, max_train_iter=arguments.max_train_iter)
    main, create, system, source = read_given(config)
    named: dict[str, Any] = {"seed": arguments.seed, "overrides": overrides, "source": source, "exp_name": exp_name}
    compiled = partial(compile_config, *serial_parts(main, create), **named)
    return compiled, create, replace(arguments, system=system_with_coordinator(create, system), source=source)


class CoordinatedRun:
    """Run of a coordinator whose workers dial in, in a folder that is held."""

    def __init__(
        self, cfg: FrozenConfig, arguments: CoordinatedArguments, folder: RunFolder, *, in_memory: bool = False
    ) -> None:
        """With `in_memory`, rows and weights may be files in memory, which no later coordinator finds."""
        check_nstep(cfg, arguments.max_env_step)
        check_own_mode(cfg, "parallel")
        self.cfg, self.folder = cfg, folder
        self.system = read_system(arguments.system, cfg, in_memory=in_memory)
        own = self.system.own_folder
        self.arguments = replace(arguments, files=None if own is None else str(own))
        self.limits = Limits(arguments.max_env_step, arguments.max_train_iter, cfg.env.stop_value)
        keys = Path(cfg.exp_name) / "keys.json"
        self.key_file = Path(arguments.key_file or keys)
        # Files and folders that are deleted when the run is over.
        self.own = [path for path in (None if arguments.key_file else keys, own) if path]

    def lines(self, url: str) -> list[str]:
        """Return the lines with which the console begins."""
        cfg, system, is_dist = self.cfg, self.system, self.arguments.mode == "dist"
        learners = "1 learner" if system.num_learners == 1 else f"{system.num_learners} learners as one"
        collectors = "collectors" if is_dist else f"{system.num_collectors} collectors"
        workers = f"{learners}, {collectors} of {cfg.env.collector_env_num} envs{' that dial in' if is_dist else ''}"
        return [
            version_line(),
            f"experiment  {cfg.exp_name}/",
            f"env         {env_name(cfg.env)}",
            f"policy      {cfg.policy.type}  seed {cfg.seed}",
            f"workers     {workers}; segments of {system.segment_rows} rows",
            f"coordinator {url}  keys {self.key_file}",
            f"until       {self.limits.describe()}",
        ]

    def make_coordinator(self) -> Coordinator:
        """Return the coordinator. Raises ConfigError for a run that is over."""
        cfg = self.cfg
        given = {"main": cfg, "system": self.system, "key_file": self.key_file, "lock": self.folder.lock}
        limits = {"seed": self.arguments.seed, "max_env_step": self.arguments.max_env_step}
        coordinator = create_coordinator({**given, **limits})
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

    def run(self) -> RunResult:
        """Serve and watch the run to its end.

        The first SIGINT or SIGTERM ends it with its state saved. Raises TrainingError with the cause if the run fails.
        """
        coordinator = self.make_coordinator()
        try:
            coordinator.start()
            self.arguments.save(self.cfg.exp_name, coordinator.url)
            return self._watch(coordinator)
        finally:
            is_done = coordinator.is_done
            coordinator.close()
            if is_done:
                for path in self.own:
                    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def _watch(self, coordinator: Coordinator) -> RunResult:
        cfg, lines = self.cfg, self.lines(reachable_url(coordinator.url))
        run = CoordinatorRun(cfg, coordinator, origin=origin_of(cfg, mode="parallel", source=self.arguments.source))
        with (
            Children(Path(cfg.exp_name) / "log" / "workers", lost=coordinator.lost_worker) as children,
            RunConsole(cfg.exp_name, self.limits, opening=lines) as console,
            StopSignal(lambda: console.event(_STOPPING)) as signals,
            Tracked(cfg) as trackers,
        ):
            trackers.follow()
            console.resume_command = self.resume_command(coordinator)
            self.start_workers(coordinator, children)

            def check() -> None:
                # Also where it is interrupted: the message then names the folder.
                if coordinator.core.env_step or signals.received is not None:
                    self.folder.keep()
                if signals.received is not None:
                    coordinator.give_up()
                    console.outcome = f"interrupted: go on with  {console.resume_command}"
                    self.log_resume_command(console.resume_command)
                    signals.leave()
                for line in children.check():
                    console.event(line)

            try:
                result = run.watch(console, check=check, children=children)
            except TrainingError:
                if self.arguments.mode == "dist":  # external workers are to be notified
                    coordinator.wait_for_workers(_LEAVE_S)
                raise
            env_fn, _, env_cfgs = get_vec_env_setting(cfg.env, collect=False)
            make_env = filmable(env_cfgs[0], env_fn) if is_game(cfg) else EnvFactory(env_cfgs[0], env_fn)
            agent = SimpleNamespace(eval_mode=eval_mode_of(cfg, make_env, None))
            write_pictures(cfg, agent, seed=self.arguments.seed)
            left = coordinator.wait_for_workers(_LEAVE_S)
            if left:
                logger.warning("not all workers have left: %s", ", ".join(left))
            console.close_summary(closing_lines(cfg.exp_name, mode="parallel"))
        return result

    def start_workers(self, coordinator: Coordinator, children: Children) -> None:
        """Log the commands by which external workers join."""
        common = ["--coordinator", reachable_url(coordinator.url), "--key-file", str(self.key_file)]
        common += self.arguments.options
        limit = limit_words({"max_train_iter": self.arguments.max_train_iter})
        for module, more in (("learner", limit), ("collector", [])):
            logger.info("join with   %s", shlex.join(["ding", "-m", "dist", "-M", module, *common, *more]))

    def resume_command(self, coordinator: Coordinator) -> str:
        """Return the command by which an interrupted run goes on."""
        arguments, exp_name = self.arguments, self.cfg.exp_name
        host, port = _address(coordinator.url)
        words = ["ding", "-m", "dist", "-M", "coordinator", *arguments.options, "--exp-name", exp_name]
        words += ["--host", host, "--port", port]
        words += [] if arguments.key_file is None else ["--key-file", arguments.key_file]
        words += limit_words({"max_env_step": arguments.max_env_step, "max_train_iter": arguments.max_train_iter})
        words += [word for word in ["policy.learn.resume_training=True"] if word not in words]
        return shlex.join(words)

    def log_resume_command(self, command: str) -> None:
        """Log the command by which an interrupted run goes on."""
        logger.info("interrupted: what is known is in %s. Workers look for the coordinator a while;", self.cfg.exp_name)
        logger.info("go on with  %s", command)


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
    at = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    with RunFolder() as folder:
        return plan_dist(
            config, arguments, folder, overrides=overrides, exp_name=exp_name, key_file=key_file, **at
        ).run()


def plan_dist(
    config: str | Path,
    arguments: CoordinatedArguments,
    folder: RunFolder,
    *,
    overrides: Sequence[str],
    exp_name: str | None,
    key_file: str | Path | None,
    **at: str | int,
) -> CoordinatedRun:
    """Return the run of a config, whose folder `folder` holds from then on; `at` are host and port; see above.

    Raises ConfigError for a host that cannot be resolved, a key file that is not there, and a host of others without.
    """
    compiled, _, arguments = _read(config, arguments, overrides=overrides, exp_name=exp_name)
    at = {**(arguments.system.get("coordinator") or {}), **at}
    system, key = to_plain({**arguments.system, "coordinator": at}), None if key_file is None else str(key_file)
    options = ("-c", str(config), "-s", str(arguments.seed), *overrides)
    arguments = replace(arguments, system=system, options=options, key_file=key)
    host = str(at.get("host") or "127.0.0.1")
    check_known(host, "--host (coordinator.host of system_config)", OWN_HOST)
    if key_file is not None and not Path(key_file).is_file():
        raise ConfigError(f"there is no key file '{key_file}'; `ding keys {key_file}` makes one.")
    if key_file is None and not is_loopback(host):
        raise ConfigError(
            f"a coordinator at {host} can be reached from other machines: make keys with `ding keys FILE`, give them "
            "with --key-file FILE, and copy the file to the hosts of its workers."
        )
    return CoordinatedRun(compiled(folder=folder), arguments, folder)


def _address(url: str) -> tuple[str, str]:
    """Return host and port of a URL."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    return host.strip("[]"), port


_OLD_LEAVE_S = 30.0  # for workers of a run that was killed: they hear of it, save, and leave within 20 s
_WORKER_PARTS = ("comm_collector", "comm_learner", "collector")


@shown_as_by_the_command()
def parallel_pipeline(
    input_cfg: SystemInput,
    seed: int = 0,
    enable_total_log: bool = False,
    disable_flask_log: bool = True,
    *,
    max_train_iter: int = NO_LIMIT,
    max_env_step: int = NO_LIMIT,
    overrides: Sequence[str] = (),
    exp_name: str | None = None,
    learners: int | None = None,
) -> RunResult:
    """Train with processes on this machine until a limit or `env.stop_value` is reached.

    A serial config runs as it is; a `system_config` says how many collectors there are and where data lie. `learners`
    stands in place of its `num_learners`, the processes that share each batch. `enable_total_log` and
    `disable_flask_log` are accepted for DI-engine's callers: workers log to files of their own.
    Raises ConfigError with every fault of the config at once, and TrainingError with the cause if a worker fails.
    """
    arguments = RunArguments("parallel", seed, max_train_iter, max_env_step)
    return ParallelMode.of(input_cfg, arguments, overrides=overrides, exp_name=exp_name, learners=learners).start()


class ParallelMode:
    """Planned run of a coordinator and its workers on this machine."""

    def __init__(self, compiled: Callable[..., FrozenConfig], arguments: CoordinatedArguments) -> None:
        self._compiled, self._arguments = compiled, arguments
        self._planned = CoordinatedRun(compiled(save=False), arguments, RunFolder())
        check_demonstrations(self._planned.cfg)

    @classmethod
    def of(
        cls,
        input_cfg: SystemInput,
        arguments: RunArguments,
        *,
        overrides: Sequence[str] = (),
        exp_name: str | None = None,
        learners: int | None = None,
    ) -> ParallelMode:
        """Return the planned run of a config; nothing is written or started."""
        run = CoordinatedArguments("parallel", arguments.seed, arguments.max_train_iter, arguments.max_env_step)
        compiled, create, run = _read(input_cfg, run, overrides=overrides, exp_name=exp_name)
        if learners is not None:
            check_cores(number_of_learners(learners))
            run = replace(run, system={**run.system, "num_learners": learners})
        parts = {name: to_plain(create[name]) for name in _WORKER_PARTS if create.get(name)}
        planned = cls(compiled, replace(run, parts=parts))
        class_of(COMM_LEARNER_REGISTRY, create.get("comm_learner"), BaseCommLearner)
        class_of(COMM_COLLECTOR_REGISTRY, create.get("comm_collector"), BaseCommCollector)
        return planned

    def dry_run(self) -> tuple[list[str], bool]:
        """Return (lines that describe what would run, True: it fits); nothing is started."""
        return [line for line in self._planned.lines("") if not line.startswith("coordinator")], True

    def start(self) -> RunResult:
        """Train to the end, and return the result."""
        with RunFolder(check=_refuse_to_mix) as folder:
            return ParallelRun(self._compiled(folder=folder, quiet=True), self._arguments, folder, in_memory=True).run()


def _refuse_to_mix(exp_name: str) -> None:
    """Raise ConfigError for the folder of a run that there is."""
    if (Path(exp_name) / STATE_FILE).exists():
        raise ConfigError(
            f"{exp_name}/ holds a run with a coordinator: go on with it by  ding "
            f"--resume {exp_name}  or give another --exp-name or leave policy.learn.resume_training out."
        )


class ParallelRun(CoordinatedRun):
    """Run of a coordinator and its workers on this machine, in a folder that is held.

    Of a run that does not come to its end, rows and weights in memory are moved into its folder, for `--resume`.
    """

    def run(self) -> RunResult:
        """Start the workers with keys of their own, and watch the run to its end."""
        keys, own = make_own_folder("ding-keys-"), self.system.own_folder
        self.key_file, self.own = keys / "keys.json", [] if own is None else [own]
        try:
            return super().run()
        finally:
            shutil.rmtree(keys, ignore_errors=True)
            if own is not None and own.exists():
                move_files(own, Path(self.cfg.exp_name) / FILES)

    def start_workers(self, coordinator: Coordinator, children: Children) -> None:
        """Start the learner and the collectors."""
        common = ["--coordinator", coordinator.url, "--key-file", str(self.key_file), "-c", str(self._write_config())]
        # Without its coordinator, which started it, a worker is to end soon.
        common += ["-s", str(self.arguments.seed), "--retry-s", "30"]
        limit = ["--train-iter", str(self.arguments.max_train_iter)]
        children.start("learner", ["-m", "dist", "-M", "learner", *common, *limit])
        for index in range(self.system.num_collectors):
            children.start(f"collector{index}", ["-m", "dist", "-M", "collector", *common])

    def _write_config(self) -> Path:
        """Write the run's config with its system part, and the workers' own classes, which a serial one lacks."""
        folder, system, parts = Path(self.cfg.exp_name), self.system, self.arguments.parts
        names = ("segment_rows", "publish_interval_s", "num_batches", "num_learners")
        part: dict[str, Any] = {name: getattr(system, name) for name in names}
        part.update(path_data=str(system.path_data.resolve()), path_policy=str(system.path_policy.resolve()))
        part["communication_mode"] = "stream" if system.communication_mode == "stream" else "shared"
        part["weights"] = vars(system.weights)
        text = (folder / "total_config.py").read_text(encoding="utf-8")
        named = f"create_config.update({pprint.pformat(parts)})\n" if parts else ""
        path = folder / WORKERS_CONFIG
        path.write_text(f"{text}\n{named}system_config = {pprint.pformat(part)}\n", encoding="utf-8")
        return path

    def resume_command(self, coordinator: Coordinator) -> str:
        """Return the command by which an interrupted run goes on."""
        return shlex.join(["ding", "--resume", self.cfg.exp_name])

    def log_resume_command(self, command: str) -> None:
        """Log the command by which an interrupted run goes on."""
        logger.info("interrupted: go on with  %s", command)


def move_files(own: Path, place: Path) -> None:
    """Move rows and weights of a run to `place`, from where it goes on; without rows they are deleted.

    Without room for them they are lost, with a warning.
    """
    if own == place:
        return
    try:
        if any((own / "data").glob("*.safetensors")):
            shutil.copytree(own, place, dirs_exist_ok=True)
    except OSError as error:
        logger.warning("the rows in %s could not be moved to %s (%s): a resume begins without", own, place, error)
        shutil.rmtree(place, ignore_errors=True)
    shutil.rmtree(own, ignore_errors=True)


def resume_coordinated(exp_name: str, run_folder: RunFolder, **limits: int | None) -> RunResult:
    """Resume a run of mode parallel or dist whose folder is held: here with new workers, else with external ones.

    `limits` are `max_train_iter` and `max_env_step`; without one that which the run was started with.
    Raises ConfigError for a run that is over, if no limit above what it has come to is given.
    """
    given: dict[str, Any] = {name: limit for name, limit in limits.items() if limit is not None}
    arguments = replace(CoordinatedArguments.read(exp_name), **given)
    file = Path(exp_name) / "total_config.py"
    main, create = serial_parts(*read_config(file))
    cfg = compile_config(
        main, create, seed=arguments.seed, source=str(file), exp_name=exp_name, save=False, renew_dir=False
    )
    with closing(SavedRun(exp_name)) as saved:
        if saved.is_over and saved.failure is None:
            has_more = arguments.max_env_step > saved.env_step and arguments.max_train_iter > saved.train_iter
            if not (given and has_more):
                refuse_to_resume(exp_name, saved.env_step, saved.train_iter)
        if arguments.mode == "dist" and not saved.is_over:  # its workers are waiting
            saved.close()
            return CoordinatedRun(cfg, arguments, run_folder).run()
        system = read_system(arguments.system, cfg, in_memory=False)
        if arguments.mode == "parallel":
            _wait_for_workers(saved)
            if arguments.files is not None and Path(arguments.files).is_dir():
                move_files(Path(arguments.files), Path(exp_name) / FILES)
        if saved.has_begun:
            lost_rows = saved.reopen(data=system.path_data, policy=system.path_policy)
            logger.info("going on at env step %s, iteration %s", f"{saved.env_step:,}", f"{saved.train_iter:,}")
            if lost_rows:
                logger.info(
                    "%s rows of the buffer were kept in memory, or deleted when the run was over: it fills anew.",
                    f"{lost_rows:,}",
                )
    kind = CoordinatedRun if arguments.mode == "dist" else ParallelRun
    return kind(cfg, arguments, run_folder).run()


def _wait_for_workers(saved: SavedRun) -> None:
    """Let the workers of a run whose launcher was killed save and leave, before others begin."""
    if not saved.workers_here():
        return
    logger.info("workers of the run before are leaving: %s", ", ".join(map(str, saved.workers_here())))

    def have_left() -> None:
        if left := saved.workers_here():
            raise TimeoutError(str(left))

    try:
        retry(have_left, TimeoutError, timeout_s=_OLD_LEAVE_S, max_wait_s=0.5)
    except TimeoutError as error:
        raise ConfigError(
            f"workers of the run before are still there after {_OLD_LEAVE_S:g} s, as processes {error}: end them with  "
            f"kill {' '.join(str(pid) for pid in saved.workers_here())}  and try again."
        ) from error


def coordinator_app(
    config: str | Path,
    *,
    key_file: str | Path,
    seed: int = 0,
    overrides: Sequence[str] = (),
    exp_name: str | None = None,
) -> object:
    """Begin a run whose workers dial in, and return the WSGI application that answers them.

    The run is watched by a thread of this process; the server goes on answering when it is over, until it is stopped.
    Raises ConfigError for a key file that is not there: who can reach the server is not known here.
    """
    setup_console(logging.INFO)
    with ExitStack() as failed:
        folder = failed.enter_context(RunFolder())
        run = plan_dist(
            config, CoordinatedArguments("dist", seed), folder, key_file=key_file, overrides=overrides,
            exp_name=exp_name,
        )  # fmt: skip
        coordinator = run.make_coordinator()
        app = coordinator.start_behind()
        failed.pop_all()  # closing the coordinator lets the folder go
    atexit.register(coordinator.close)
    threading.Thread(target=_watch, args=(run, coordinator), name="watch", daemon=True).start()
    return app


def _watch(run: CoordinatedRun, coordinator: Coordinator) -> None:
    cfg, lines = run.cfg, run.lines("of the server that was given this application")
    try:
        with RunConsole(cfg.exp_name, run.limits, opening=lines) as console, Tracked(cfg) as trackers:
            trackers.follow()
            watched = CoordinatorRun(cfg, coordinator, origin=origin_of(cfg, mode="dist", source=run.arguments.source))
            result = watched.watch(console, check=lambda: None)
        logger.info("the run is over: the last model returns %g. Stop the server.", result.eval_value)
    except DingError as error:
        logger.error("%s", error)
