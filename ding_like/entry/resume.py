"""Go on with an interrupted run, in the mode that it was started in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ding_like.entry.learners import RunArguments
from ding_like.entry.serial_entry import resume_serial
from ding_like.errors import ConfigError
from ding_like.pipeline.build import EnvSetting
from ding_like.pipeline.checkpoint import resume_store
from ding_like.policy import Policy
from ding_like.utils.log import shown_as_by_the_command

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
) -> Policy:
    """Go on with an interrupted run from its newest valid saved point, and return the policy.

    `exp_name` is the run's folder. `env_setting` and `model` must be given again if the run was started with them; the
    limits are those it was started with unless others are given, and there are as many learners. A run of mode ray may
    go on with other `workers`, and on the cluster at another `address`. Raises CheckpointError if there is nothing to
    resume.
    """
    arguments = RunArguments(**resume_store(exp_name).newest_meta()["arguments"])
    if max_train_iter is not None:
        arguments = arguments._replace(max_train_iter=max_train_iter)
    if max_env_step is not None:
        arguments = arguments._replace(max_env_step=max_env_step)
    if arguments.mode != "ray":
        if workers is not None or address is not None:
            raise ConfigError(f"{exp_name} is a run of mode {arguments.mode}: --workers and --address are of mode ray.")
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
