"""Train with a coordinator, collectors and a learner in processes of their own on this machine; resume such a run."""

from __future__ import annotations

import logging
import pprint
import shutil
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from ding_like.config import compile_config, read_config, to_plain
from ding_like.entry.coordinator_entry import CoordinatedArguments, CoordinatorPlan, plan_of, run_coordinator
from ding_like.entry.learners import check_cores, number_of_learners
from ding_like.entry.plan import (
    NO_LIMIT,
    SystemInput,
    check_limits,
    check_nstep,
    read_given,
    refuse_in_child,
    refuse_to_resume,
)
from ding_like.errors import ConfigError
from ding_like.pipeline.parallel.children import Children
from ding_like.pipeline.parallel.comm_collector import BaseCommCollector
from ding_like.pipeline.parallel.comm_learner import BaseCommLearner
from ding_like.pipeline.parallel.coordinator import Coordinator
from ding_like.pipeline.parallel.core.state import STATE_FILE, WORKERS_CONFIG, SavedRun
from ding_like.pipeline.parallel.settings import (
    FILES,
    SystemConfig,
    class_of,
    read_system,
    serial_parts,
    system_with_coordinator,
)
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
    refuse_in_child()
    check_limits(max_env_step=max_env_step, max_train_iter=max_train_iter)
    main, given_create, system_config, source = read_given(input_cfg)
    main, create = serial_parts(main, given_create)
    system_config = system_with_coordinator(given_create, system_config)
    if learners is not None:
        check_cores(number_of_learners(learners))
        system_config = {**system_config, "num_learners": learners}
    with RunFolder(check=_refuse_to_mix) as run_folder:
        cfg = compile_config(
            main, create, seed=seed, overrides=overrides, source=source, exp_name=exp_name, folder=run_folder
        )
        check_nstep(cfg, max_env_step)
        class_of(COMM_LEARNER_REGISTRY, given_create.get("comm_learner"), BaseCommLearner, default="flask_fs")
        class_of(COMM_COLLECTOR_REGISTRY, given_create.get("comm_collector"), BaseCommCollector, default="flask_fs")
        system = read_system(system_config, cfg)
        arguments = CoordinatedArguments(
            "parallel",
            seed,
            max_train_iter,
            max_env_step,
            system=system_config,
            parts={name: to_plain(given_create[name]) for name in _WORKER_PARTS if given_create.get(name)},
            source=source,
            files=None if system.own_folder is None else str(system.own_folder),
        )
        return run_here(cfg, system, arguments, run_folder)


def _refuse_to_mix(exp_name: str) -> None:
    """Raise ConfigError for the folder of a run that there is."""
    if (Path(exp_name) / STATE_FILE).exists():
        raise ConfigError(
            f"{exp_name}/ holds a run with a coordinator: go on with it by  ding "
            f"--resume {exp_name}  or give another --exp-name or leave policy.learn.resume_training out."
        )


def run_here(cfg: Any, system: SystemConfig, arguments: CoordinatedArguments, run_folder: RunFolder) -> RunResult:
    """Run a coordinator and its workers on this machine, in a folder that is held; return the result.

    Of a run that does not come to its end, rows and weights in memory are moved into its folder, for `--resume`.
    """
    keys = make_own_folder("ding-keys-")
    own = () if system.own_folder is None else (system.own_folder,)
    plan = CoordinatorPlan(cfg, system, arguments, run_folder, keys / "keys.json", own)
    try:
        return run_coordinator(plan, lambda coordinator, children: _start_workers(plan, coordinator, children))
    finally:
        shutil.rmtree(keys, ignore_errors=True)
        if system.own_folder is not None and system.own_folder.exists():
            move_files(system.own_folder, Path(cfg.exp_name) / FILES)


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


def _start_workers(plan: CoordinatorPlan, coordinator: Coordinator, children: Children) -> None:
    arguments = plan.arguments
    config = _write_config(plan.cfg, plan.system, arguments.parts)
    common = ["--coordinator", coordinator.url, "--key-file", str(plan.key_file), "-c", str(config)]
    # Without its coordinator, which started it, a worker is to end soon.
    common += ["-s", str(arguments.seed), "--retry-s", "30"]
    children.start("learner", ["-m", "dist", "-M", "learner", *common, "--train-iter", str(arguments.max_train_iter)])
    for index in range(plan.system.num_collectors):
        children.start(f"collector{index}", ["-m", "dist", "-M", "collector", *common])


def _write_config(cfg: Any, system: SystemConfig, parts: dict[str, Any]) -> Path:
    """Write the run's config with its system part: what workers on this machine are started with.

    `parts` are the worker's own classes, which a serial config does not name.
    """
    text = (Path(cfg.exp_name) / "total_config.py").read_text(encoding="utf-8")
    part = {
        "path_data": str(system.path_data.resolve()),
        "path_policy": str(system.path_policy.resolve()),
        "segment_rows": system.segment_rows,
        "publish_interval_s": system.publish_interval_s,
        "weights": system.weights,
        "num_batches": system.num_batches,
        "num_learners": system.num_learners,
        "communication_mode": "stream" if system.communication_mode == "stream" else "shared",
    }
    path = Path(cfg.exp_name) / WORKERS_CONFIG
    named = f"create_config.update({pprint.pformat(parts)})\n" if parts else ""
    path.write_text(f"{text}\n{named}system_config = {pprint.pformat(part)}\n", encoding="utf-8")
    return path


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
            return run_coordinator(plan_of(cfg, arguments, run_folder))
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
    if arguments.mode == "dist":
        return run_coordinator(plan_of(cfg, arguments, run_folder))
    return run_here(cfg, system, replace(arguments, files=None), run_folder)


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
