"""Go on with an interrupted run, in the mode that it was started in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ding_like.entry.learners import RunArguments, is_first
from ding_like.entry.limits import checked_limit, refuse_in_child
from ding_like.entry.serial_entry import resume_serial
from ding_like.errors import ConfigError
from ding_like.pipeline.build.envs import EnvSetting
from ding_like.pipeline.checkpoint import resume_store
from ding_like.pipeline.parallel.reopen import STATE_FILE
from ding_like.pipeline.roles.record import RunResult
from ding_like.policy import Policy
from ding_like.utils.log import shown_as_by_the_command
from ding_like.utils.run_folder import RunFolder

if TYPE_CHECKING:
    import torch


@shown_as_by_the_command()
def resume_pipeline(
    exp_name: str,
    env_setting: EnvSetting | None = None,
    model: torch.nn.Module | None = None,
    max_train_iter: int | None = None,
    max_env_step: int | None = None,
    *,
    learners: int | None = None,
    workers: int | None = None,
    address: str | None = None,
) -> Policy | RunResult | None:
    """Go on with an interrupted run from its newest valid saved point, and return the policy.

    `exp_name` is the run's folder. `env_setting` and `model` must be given again if the run was started with them; the
    limits are those it was started with unless others are given, and there are as many learners. A run of mode ray may
    go on with other `workers`, and on the cluster at another `address`. Of a run with a coordinator the result is
    returned. Raises CheckpointError if there is nothing to resume, and ConfigError while another process trains there.
    """
    refuse_in_child()
    for name, limit in (("max_env_step", max_env_step), ("max_train_iter", max_train_iter)):
        if limit is not None:
            checked_limit(name, limit)
    with RunFolder() as folder:
        is_run = (Path(exp_name) / "total_config.py").is_file()
        if is_run and is_first():  # of torchrun's processes, one holds the folder for all
            folder.hold(exp_name)
        if not (Path(exp_name) / STATE_FILE).exists():
            limits = {"max_train_iter": max_train_iter, "max_env_step": max_env_step}
            return _resume_loop(exp_name, limits, env_setting, model, learners, workers, address)
        _refuse_objects(exp_name, "parallel", learners, env_setting, model)
        if (workers, address) != (None, None):
            raise ConfigError(f"{exp_name} is a run with a coordinator: --workers and --address are of mode ray.")
        from ding_like.entry.parallel_entry import resume_coordinated  # only where it is needed: it brings more

        return resume_coordinated(exp_name, folder, max_train_iter=max_train_iter, max_env_step=max_env_step)


def _resume_loop(
    exp_name: str,
    limits: dict[str, Any],  # of RunArguments; None: that of the run
    env_setting: EnvSetting | None,
    model: torch.nn.Module | None,
    learners: int | None,
    workers: int | None,
    address: str | None,
) -> Policy | None:
    """Go on with a run whose loop is in this process, by the arguments that were saved with its newest point."""
    arguments = RunArguments(**resume_store(exp_name).newest_meta()["arguments"])
    arguments = arguments._replace(**{name: limit for name, limit in limits.items() if limit is not None})
    if arguments.mode != "ray":
        if workers is not None or address is not None:
            raise ConfigError(f"{exp_name} is a run of mode {arguments.mode}: --workers and --address are of mode ray.")
        if arguments.mode == "ranks":
            _refuse_objects(exp_name, arguments.mode, learners, env_setting, model)
            from ding_like.entry.ranks_entry import resume_ranks  # only where it is needed: it brings more

            return resume_ranks(exp_name, arguments)
        if arguments.mode == "seed":
            _refuse_objects(exp_name, arguments.mode, learners, env_setting, model)
            from ding_like.entry.seed_entry import resume_seed  # only where it is needed: it brings more

            return resume_seed(exp_name, arguments)
        return resume_serial(exp_name, arguments, env_setting=env_setting, model=model, learners=learners)
    _refuse_objects(exp_name, arguments.mode, learners, env_setting, model)
    from ding_like.entry.ray_entry import resume_ray  # only where it is needed: it brings more

    return resume_ray(exp_name, arguments, workers=workers, address=address)


def _refuse_objects(exp_name: str, mode: str, *given: object) -> None:
    if any(each is not None for each in given):
        raise ConfigError(f"{exp_name} is a run of mode {mode}, which --learners, env_setting and model are not of.")
