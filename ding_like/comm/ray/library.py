"""Load Ray, the one place that does, with what its environment must say before."""

from __future__ import annotations

import logging
import os
from typing import Any

from ding_like.errors import ConfigError
from ding_like.utils.imports import pip_line

logger = logging.getLogger(__name__)

# What Ray reads when it is imported or started. What the user has set is left alone.
ENVIRONMENT = {
    "RAY_worker_niceness": "0",  # else workers run at nice 15, behind everything else on the machine
    "RAY_ENABLE_AUTO_CONNECT": "0",  # else a call after the end of a cluster starts another one without a word
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is reported to anybody
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # a worker without a GPU keeps its environment; without it Ray warns
}


def load_ray() -> Any:  # Any: a package that need not be installed
    """Return the module ray. Raises ConfigError that says how to install it where it is missing."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise ConfigError(
            f"Ray cannot be loaded ({error}): install it with {pip_line('ray')}, or train with -m serial."
        ) from error
    _keep_pages_off_the_console(ray)
    return ray


def _keep_pages_off_the_console(ray: Any) -> None:
    """Log at level DEBUG what Ray's node manager has to say, a page for each death of a worker.

    Ray prints it to the console whatever `log_to_driver` says, and has no setting for it. Who died and why is in the
    log of failures, which a worker set keeps.
    """
    worker = getattr(getattr(ray, "_private", None), "worker", None)
    show = getattr(worker, "print_to_stdstream", None)
    if show is None or getattr(show, "is_quiet", False):
        return

    def show_others(data: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(data, dict) and data.get("pid") == "raylet":
            logger.debug("ray: %s", " ".join(map(str, data.get("lines", ()))))
        else:
            show(data, *args, **kwargs)

    show_others.is_quiet = True  # type: ignore[attr-defined]
    setattr(worker, show.__name__, show_others)
