"""Go on with a run that has a coordinator: on this machine with new workers, else for those who dial in."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from ding_like.config import compile_config, read_config
from ding_like.entry.coordinator_entry import plan_of, run_for_those_who_join
from ding_like.entry.parallel_entry import move_files, run_here
from ding_like.entry.saved_arguments import CoordinatedArguments, read_arguments
from ding_like.errors import ConfigError
from ding_like.pipeline.parallel.reopen import SavedRun
from ding_like.pipeline.parallel.settings import FILES, read_system, serial_parts
from ding_like.pipeline.roles.record import RunResult
from ding_like.utils.files import retry
from ding_like.utils.run_folder import RunFolder

logger = logging.getLogger(__name__)

_LEAVE_S = 30.0  # for workers of a run that was killed: they hear of it, save, and leave within 20 s


def resume_coordinated(
    exp_name: str, run_folder: RunFolder, *, max_train_iter: int | None = None, max_env_step: int | None = None
) -> RunResult:
    """Go on with a run of mode parallel or dist whose folder is held; return its result.

    Raises ConfigError for a run that is over, if no limit above what it has come to is given.
    """
    arguments = read_arguments(exp_name)
    if max_train_iter is not None:
        arguments = replace(arguments, max_train_iter=max_train_iter)
    if max_env_step is not None:
        arguments = replace(arguments, max_env_step=max_env_step)
    file = read_config(Path(exp_name) / "total_config.py")
    main, create = serial_parts(file.main_config, file.create_config)
    cfg = compile_config(
        main, create, seed=arguments.seed, source=str(Path(exp_name) / "total_config.py"), exp_name=exp_name,
        save=False, renew_dir=False,
    )  # fmt: skip
    with SavedRun(exp_name) as saved:
        if saved.is_over and saved.failure is None:
            _check_limits(saved, exp_name, arguments, is_given=(max_train_iter, max_env_step) != (None, None))
        if arguments.mode == "dist" and not saved.is_over:  # its workers are waiting
            saved.close()
            return run_for_those_who_join(plan_of(cfg, arguments, run_folder))
        system = read_system(arguments.system, cfg, in_memory=False)
        if arguments.mode == "parallel":
            _wait_for_workers(saved)
            if arguments.files is not None and Path(arguments.files).is_dir():
                move_files(Path(arguments.files), Path(exp_name) / FILES)
        if saved.has_begun:
            _reopen(saved, system.path_data, system.path_policy)
    if arguments.mode == "dist":
        return run_for_those_who_join(plan_of(cfg, arguments, run_folder))
    return run_here(cfg, system, replace(arguments, files=None), run_folder)


def _check_limits(saved: SavedRun, exp_name: str, arguments: CoordinatedArguments, *, is_given: bool) -> None:
    """Refuse to go on with a run that came to its end, unless it has been given more to do."""
    if is_given and arguments.max_env_step > saved.env_step and arguments.max_train_iter > saved.train_iter:
        return
    raise ConfigError(
        f"the run in {exp_name}/ is over, at env step {saved.env_step:,} and iteration {saved.train_iter:,}: to go on "
        f"give --env-step or --train-iter above that, as in  ding --resume {exp_name} --env-step "
        f"{2 * max(saved.env_step, 1)}"
    )


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


def _reopen(saved: SavedRun, data: Path, policy: Path) -> None:
    found = saved.reopen(data=data, policy=policy)
    logger.info("going on at env step %s, iteration %s", f"{found.env_step:,}", f"{found.train_iter:,}")
    if found.lost_rows:
        logger.info(
            "%s rows of the buffer were kept in memory, or deleted when the run was over: it fills anew.",
            f"{found.lost_rows:,}",
        )
