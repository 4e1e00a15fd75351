"""Train by a scheme from a loop of one's own."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ding_like.pipeline.ray.scheme import Scheme

logger = logging.getLogger(__name__)


class Learner:
    """Train by a scheme for `target_steps` env steps. Source: PyTorchRL's Learner."""

    def __init__(self, scheme: Scheme, target_steps: int, log_dir: str | None = None) -> None:
        """Take the first turn at the first `step`; checkpoints go into the experiment's folder, or `log_dir`."""
        self.scheme, self.target_steps = scheme, target_steps
        self._log_dir = log_dir
        self._info: Mapping[str, Any] | None = None

    def step(self) -> Mapping[str, Any]:
        """Take one turn and return what is said of it: of episodes, versions, lag, times and losses, by name."""
        if self._info is None:
            self.scheme.collect_random()
        self._info = self.scheme.update_worker.step()
        return self._info

    def done(self) -> bool:
        """Tell whether `target_steps` env steps were taken."""
        return self.scheme.env_step >= self.target_steps

    def print_info(self) -> None:
        """Log what was said of the last turn."""
        logger.info("env step %s: %s", f"{self.scheme.env_step:,}", dict(self._info or {}))

    def save_model(self, fname: str = "model.pth.tar") -> None:
        """Write a checkpoint of the learner, whole or not at all."""
        self.scheme.update_worker.save_model(fname)

    def update_algorithm_parameter(self, parameter_name: str, new_parameter_value: Any) -> bool:
        """Set an attribute of the algorithm in all workers; tell whether all have it."""
        return self.scheme.update_worker.update_algorithm_parameter(parameter_name, new_parameter_value)

    def stop(self) -> None:
        """End all workers."""
        self.scheme.stop()
