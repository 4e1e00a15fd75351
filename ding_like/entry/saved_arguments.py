"""Save what a run with a coordinator was started with, so that `ding --resume` can go on with it."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from ding_like.errors import CheckpointError
from ding_like.utils.files import atomic_write
from ding_like.utils.full_disk import when_there_is_room

logger = logging.getLogger(__name__)

ARGUMENTS_FILE = "run_arguments.json"


@dataclass(frozen=True)
class CoordinatedArguments:
    """Hold the arguments of a run of mode parallel or dist beside its config; plain data."""

    mode: Literal["parallel", "dist"]
    seed: int
    max_train_iter: int
    max_env_step: int
    system: dict[str, Any] = field(default_factory=dict)  # the `system_config` that was given
    parts: dict[str, Any] = field(default_factory=dict)  # of mode parallel: the workers' own classes
    source: str = ""  # the config's file, if it had one
    options: tuple[str, ...] = ()  # of mode dist: by which workers are told what to join with
    key_file: str | None = None  # of mode dist, if one was given
    files: str | None = None  # of mode parallel: the folder of rows and weights that was made for the run

    def save(self, exp_name: str) -> None:
        """Write them into the run's folder; a full disk is waited for."""

        def write() -> None:
            with atomic_write(Path(exp_name) / ARGUMENTS_FILE) as file:
                file.write(json.dumps(asdict(self), indent=1).encode())

        when_there_is_room(write, tell=logger.warning)


def read_arguments(exp_name: str) -> CoordinatedArguments:
    """Return what a run was started with. Raises CheckpointError where that is not said."""
    path = Path(exp_name) / ARGUMENTS_FILE
    try:
        found: Any = json.loads(path.read_bytes())
        return CoordinatedArguments(**{**found, "options": tuple(found["options"])})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}), so it is not known what the run was started with. A coordinator goes on "
            "when it is started in the same folder, with the options that it had: ding -m dist -M coordinator -c FILE "
            f"--exp-name {exp_name} policy.learn.resume_training=True."
        ) from error
