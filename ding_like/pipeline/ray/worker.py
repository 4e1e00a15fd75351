"""Base class of workers that collect, compute gradients, or update."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ding_like import __version__
from ding_like.errors import ConfigError

_logger = logging.getLogger(__name__)


EXECUTION = ("Central", "Parallel", "Parallelised")
COMMUNICATION = ("synchronous", "asynchronous")


def check_word(name: str, word: str, allowed: Sequence[str]) -> None:
    """Raise ConfigError for a word that is not allowed."""
    if word not in allowed:
        raise ConfigError(f"{name} is {word!r}; expected {' or '.join(map(repr, allowed))}.")


def check_fraction(col_fraction_workers: float) -> None:
    """Raise ConfigError for what is no fraction of workers."""
    if not 0 < col_fraction_workers <= 1:
        raise ConfigError(f"col_fraction_workers is {col_fraction_workers}; expected more than 0, at most 1.")


class Worker:
    """Worker of a scheme: a plain object, in this process or in a Ray actor.

    Methods that change an attribute return whether there is one; a missing one is logged.
    """

    def __init__(self, index_worker: int) -> None:
        self.index_worker = index_worker

    def ready(self) -> Mapping[str, Any]:  # Any: plain JSON; a subclass may say more
        """Return where the worker runs, once it can work."""
        return {"pid": os.getpid(), "node": socket.gethostname(), "version": __version__}

    def print_worker_info(self) -> None:
        """Log which worker this is, and where it runs."""
        _logger.info("worker %d: %s", self.index_worker, dict(self.ready()))

    def update_algorithm_parameter(self, parameter_name: str, new_parameter_value: Any) -> bool:
        """Set an attribute of `algo` that there is."""
        return self._set(getattr(self, "algo", None), parameter_name, new_parameter_value)

    def update_storage_parameter(self, parameter_name: str, new_parameter_value: Any) -> bool:
        """Set an attribute of `storage` that there is."""
        return self._set(getattr(self, "storage", None), parameter_name, new_parameter_value)

    def replace_agent_component(self, component_name: str, new_component_factory: Callable[..., Any]) -> bool:
        """Put what `new_component_factory(device)` makes in the place of an attribute that there is."""
        return self._set(self, component_name, lambda: new_component_factory(getattr(self, "device", None)))

    def stop(self) -> None:
        """Release what the worker holds; may be called again."""

    def terminate_worker(self) -> None:
        """Do what `stop` does; the set of the worker ends its process."""
        self.stop()

    def _set(self, owner: object, name: str, value: Any) -> bool:
        if owner is None or name.startswith("_") or not hasattr(owner, name):
            part = "such part" if owner is None else f"'{name}' of {type(owner).__name__}"
            _logger.warning("worker %d: there is no %s to set.", self.index_worker, part)
            return False
        setattr(owner, name, value() if owner is self else value)
        return True
