"""Train with a coordinator, collectors and a learner in processes of their own on this machine; resume such a run."""

from __future__ import annotations

import logging
import pprint
import shlex
import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from ding_like.config import FrozenConfig, compile_config, read_config, to_plain
from ding_like.entry.coordinator_entry import CoordinatedArguments, CoordinatedRun, Given
from ding_like.entry.learners import check_cores, number_of_learners
from ding_like.entry.plan import NO_LIMIT, RunArguments, SystemInput, refuse_to_resume
from ding_like.errors import ConfigError
from ding_like.pipeline.parallel.comm_collector import BaseCommCollector
from ding_like.pipeline.parallel.comm_learner import BaseCommLearner
from ding_like.pipeline.parallel.coordinator import Coordinator
from ding_like.pipeline.parallel.coordinator_run import Children
from ding_like.pipeline.parallel.core.state import STATE_FILE, WORKERS_CONFIG, SavedRun
from ding_like.pipeline.parallel.settings import FILES, class_of, read_system, serial_parts
from ding_like.pipeline.record import RunResult
from ding_like.utils.files import retry
from ding_like.utils.log import shown_as_by_the_command
from ding_like.utils.processes import make_own_folder
from ding_like.utils.registries import COMM_COLLECTOR_REGISTRY, COMM_LEARNER_REGISTRY
from ding_like.utils.run_folder import RunFolder

logger = logging.getLogger(__name__)

_LEAVE_S = 30.0  # for workers of a run that was killed: they hear of it, save, and leave within 20 s
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
        given = Given.of(input_cfg, run, overrides=overrides, exp_name=exp_name)
        system, create = given.system, given.create
        if learners is not None:
            check_cores(number_of_learners(learners))
            system = {**system, "num_learners": learners}
        parts = {name: to_plain(create[name]) for name in _WORKER_PARTS if create.get(name)}
        planned = cls(given.compiled, replace(run, system=system, parts=parts, source=given.source))
        class_of(COMM_LEARNER_REGISTRY, create.get("comm_learner"), BaseCommLearner, default="flask_fs")
        class_of(COMM_COLLECTOR_REGISTRY, create.get("comm_collector"), BaseCommCollector, default="flask_fs")
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

    def __init__(
        self, cfg: FrozenConfig, arguments: CoordinatedArguments, folder: RunFolder, *, in_memory: bool = False
    ) -> None:
        super().__init__(cfg, arguments, folder, in_memory=in_memory)
        own = self.system.own_folder
        self.arguments = replace(arguments, files=None if own is None else str(own))

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
        names = ("segment_rows", "publish_interval_s", "weights", "num_batches", "num_learners")
        part = {
            "path_data": str(system.path_data.resolve()),
            "path_policy": str(system.path_policy.resolve()),
            **{name: getattr(system, name) for name in names},
            "communication_mode": "stream" if system.communication_mode == "stream" else "shared",
        }
        text = (folder / "total_config.py").read_text(encoding="utf-8")
        named = f"create_config.update({pprint.pformat(parts)})\n" if parts else ""
        path = folder / WORKERS_CONFIG
        path.write_text(f"{text}\n{named}system_config = {pprint.pformat(part)}\n", encoding="utf-8")
        return path

    def log_resume_command(self, coordinator: Coordinator) -> None:
        """Log the command by which an interrupted run goes on."""
        logger.info("interrupted: go on with  %s", shlex.join(["ding", "--resume", self.cfg.exp_name]))


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


def resume_coordinated(
    exp_name: str, run_folder: RunFolder, *, max_train_iter: int | None = None, max_env_step: int | None = None
) -> RunResult:
    """Resume a run of mode parallel or dist whose folder is held: here with new workers, else with external ones.

    Raises ConfigError for a run that is over, if no limit above what it has come to is given.
    """
    limits = {"max_train_iter": max_train_iter, "max_env_step": max_env_step}
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
    return kind(cfg, replace(arguments, files=None), run_folder).run()


def _wait_for_workers(saved: SavedRun) -> None:
    """Let the workers of a run whose launcher was killed save and leave, before others begin."""
    if not saved.workers_here():
        return
    logger.info("workers of the run before are leaving: %s", ", ".join(map(str, saved.workers_here())))

    def have_left() -> None:
        if left := saved.workers_here():
            raise TimeoutError(str(left))

    try:
        retry(have_left, TimeoutError, timeout_s=_LEAVE_S, max_wait_s=0.5)
    except TimeoutError as error:
        raise ConfigError(
            f"workers of the run before are still there after {_LEAVE_S:g} s, as processes {error}: end them with  "
            f"kill {' '.join(str(pid) for pid in saved.workers_here())}  and try again."
        ) from error
