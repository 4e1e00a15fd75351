"""Resume an interrupted run in the mode that it was started in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ding_like.entry.learners import is_first
from ding_like.entry.modes import MODES, load
from ding_like.entry.plan import RunArguments, check_limits, refuse_in_child, refuse_to_resume
from ding_like.errors import ConfigError
from ding_like.pipeline.checkpoint import resume_store
from ding_like.pipeline.envs import EnvSetting
from ding_like.pipeline.parallel.core.state import STATE_FILE
from ding_like.pipeline.record import RunResult
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
    """Resume an interrupted run from its newest valid saved point, and return the policy.

    `exp_name` is the run's folder. `env_setting` and `model` must be given again if the run was started with them; the
    limits are those it was started with unless others are given, and there are as many learners. A run of mode ray may
    be resumed with other `workers`, and on the cluster at another `address`. Of a run with a coordinator the result is
    returned. Raises CheckpointError if there is nothing to resume, and ConfigError while another process trains there,
    or if the run is over and no limit above what it has come to is given.
    """
    refuse_in_child()
    limits = {"max_train_iter": max_train_iter, "max_env_step": max_env_step}
    check_limits(**limits)
    serial, ray = {"env_setting": env_setting, "model": model, "learners": learners}, (workers, address)
    with RunFolder() as folder:
        is_run = (Path(exp_name) / "total_config.py").is_file()
        if is_run and is_first():  # of torchrun's processes, one holds the folder for all
            folder.hold(exp_name)
        is_coordinated = (Path(exp_name) / STATE_FILE).exists()
        arguments = None if is_coordinated else RunArguments(**resume_store(exp_name).newest_meta()["arguments"])
        mode = "parallel" if arguments is None else arguments.mode
        if mode != "ray" and ray != (None, None):
            kind = "with a coordinator" if arguments is None else f"of mode {mode}"
            raise ConfigError(f"{exp_name} is a run {kind}: --workers and --address are of mode ray.")
        if not mode.startswith("serial") and any(each is not None for each in serial.values()):
            raise ConfigError(
                f"{exp_name} is a run of mode {mode}, which --learners, env_setting and model are not of."
            )
        if arguments is None:
            from ding_like.entry.parallel_entry import resume_coordinated

            return resume_coordinated(exp_name, folder, **limits)
        options = {"ray": {"workers": workers, "address": address}}.get(mode, {})
        run = load(MODES[mode].home)
        given = serial if mode.startswith("serial") else options
        return run.of(None, _with_limits(exp_name, arguments, limits), exp_name=exp_name, **given).start()


def _with_limits(exp_name: str, arguments: RunArguments, limits: dict[str, Any]) -> RunArguments:
    """Return the arguments with the `limits` that are given (not None) in place of the run's own.

    Raises ConfigError for a run that is over, unless a limit above what it has come to is given.
    """
    given = {name: limit for name, limit in limits.items() if limit is not None}
    arguments, result = arguments._replace(**given), Path(exp_name) / "result.json"
    if not result.is_file():
        return arguments
    found = json.loads(result.read_text(encoding="utf-8"))
    env_step, train_iter = int(found["env_step"]), int(found["train_iter"])
    has_more = bool(given) and arguments.max_env_step > env_step and arguments.max_train_iter > train_iter
    if not has_more and resume_store(exp_name).steps()[0] <= env_step:
        refuse_to_resume(exp_name, env_step, train_iter)
    return arguments
