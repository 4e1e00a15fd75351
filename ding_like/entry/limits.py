"""Check the numbers that a run is given beside its config: limits, ports, counts of processes."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from numbers import Real
from types import FrameType
from typing import Any

from ding_like.errors import ConfigError
from ding_like.utils.bounds import FROM_0, FROM_1, Bounds

_OPTIONS: Mapping[str, Bounds] = {
    "env_step": FROM_1,
    "train_iter": FROM_1,
    "learners": FROM_1,
    "jobs": FROM_1,
    "port": Bounds(0, 65535),
    "retry_s": FROM_0,
}


def check_options(options: Mapping[str, Any]) -> None:
    """Raise ConfigError for an option of the command line whose number is out of range."""
    for name, bounds in _OPTIONS.items():
        if not bounds.hold(value := options.get(name)):
            raise ConfigError(f"--{name.replace('_', '-')} is {value:g}; give {bounds}.")


def refuse_in_child() -> None:
    """Raise ConfigError in a worker process that imports the caller's script, which would train there once more."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        # What multiprocessing calls the main module of the parent while a child imports it.
        if frame.f_globals.get("__name__") == "__mp_main__" and frame.f_code.co_name == "<module>":
            raise ConfigError(
                f"line {frame.f_lineno} of {frame.f_code.co_filename} also runs in each worker process, which imports "
                "the script: put it under  if __name__ == '__main__':"
            )
        frame = frame.f_back


def check_limits(*, max_env_step: Any, max_train_iter: Any) -> None:
    """Raise ConfigError for a limit that is no number of steps."""
    checked_limit("max_env_step", max_env_step)
    checked_limit("max_train_iter", max_train_iter)


def check_nstep(cfg: Any, max_env_step: int) -> None:
    """Raise ConfigError for rows of more steps than the whole run has."""
    nstep = cfg.policy.get("nstep", 1)
    if nstep > max_env_step:
        raise ConfigError(
            f"policy.nstep is {nstep:,}, more than the {max_env_step:,} env steps of the run: no such return could be "
            f"summed. Give policy.nstep from 1 to {max_env_step:,} (1 to 5 is usual), or --env-step {nstep} or more."
        )


def checked_limit(name: str, value: Any) -> int:
    """Return a number of steps as a whole one. Raises ConfigError for what is none."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not 1 <= value < math.inf or value % 1:
        kind = "the text " if isinstance(value, str) else ""
        raise ConfigError(
            f"{name} is {kind}{value!r}, expected a number from 1 without a fraction, such as {name}=20_000; or "
            "leave it out."
        )
    return int(value)
