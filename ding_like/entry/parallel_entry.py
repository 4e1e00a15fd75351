"""Train with a coordinator, collectors and a learner in processes of their own on this machine."""

from __future__ import annotations

import logging
import pprint
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ding_like.config import compile_config, read_config, to_plain
from ding_like.config.read import given_configs
from ding_like.entry.coordinator_entry import Plan, run_coordinator
from ding_like.entry.learners import check_cores, number_of_learners
from ding_like.entry.limits import check_limits, check_nstep, refuse_in_child
from ding_like.entry.saved_arguments import CoordinatedArguments
from ding_like.entry.serial_entry import NO_LIMIT
from ding_like.errors import ConfigError
from ding_like.pipeline.parallel.children import Children
from ding_like.pipeline.parallel.comm_collector import BaseCommCollector
from ding_like.pipeline.parallel.comm_learner import BaseCommLearner
from ding_like.pipeline.parallel.coordinator import Coordinator
from ding_like.pipeline.parallel.reopen import STATE_FILE, WORKERS_CONFIG
from ding_like.pipeline.parallel.settings import (
    FILES,
    SystemConfig,
    class_of,
    read_system,
    serial_parts,
    system_with_coordinator,
)
from ding_like.pipeline.roles.record import RunResult
from ding_like.utils.log import shown_as_by_the_command
from ding_like.utils.own_folder import make_own_folder
from ding_like.utils.registries import COMM_COLLECTOR_REGISTRY, COMM_LEARNER_REGISTRY
from ding_like.utils.run_folder import RunFolder

logger = logging.getLogger(__name__)

_WORKER_PARTS = ("comm_collector", "comm_learner", "collector")

# A config file, or its (main_config, create_config, system_config).
ParallelConfig = str | Path | tuple[Any, Any, Any]


@shown_as_by_the_command()
def parallel_pipeline(
    input_cfg: ParallelConfig,
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
    main, given_create, system_config, source = _read(input_cfg)
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
    plan = Plan(
        cfg,
        system,
        arguments.seed,
        arguments.max_env_step,
        arguments.max_train_iter,
        keys / "keys.json",
        own=() if system.own_folder is None else (system.own_folder,),
        source=arguments.source,
        arguments=arguments,
        run_folder=run_folder,
    )
    parts = arguments.parts
    try:
        return run_coordinator(plan, lambda coordinator, children: _start_workers(plan, parts, coordinator, children))
    finally:
        shutil.rmtree(keys, ignore_errors=True)
        if system.own_folder is not None and system.own_folder.exists():
            move_files(system.own_folder, Path(cfg.exp_name) / FILES)


def move_files(own: Path, place: Path) -> None:
    """Move rows and weights of a run to `place`, from where it goes on; without rows they are deleted.

    Where they find no room they are lost, and the log says so.
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


def _read(input_cfg: ParallelConfig) -> tuple[Any, Any, Any, str]:
    if isinstance(input_cfg, (str, Path)):
        file = read_config(input_cfg)
        return file.main_config, file.create_config, file.system_config, str(input_cfg)
    main, create, *system = given_configs(input_cfg, has_system=True)
    return main, create, system[0] if system else None, "the given config"


def _start_workers(plan: Plan, parts: dict[str, Any], coordinator: Coordinator, children: Children) -> None:
    config = _write_config(plan.cfg, plan.system, parts)
    common = ["--coordinator", coordinator.url, "--key-file", str(plan.key_file), "-c", str(config)]
    # Without its coordinator, which started it, a worker is to end soon.
    common += ["-s", str(plan.seed), "--retry-s", "30"]
    children.start("learner", ["-m", "dist", "-M", "learner", *common, "--train-iter", str(plan.max_train_iter)])
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
