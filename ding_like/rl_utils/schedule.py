"""Make functions from a step count to a number: learning rates, exploration, clip ranges."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ding_like.errors import ConfigError

Schedule: TypeAlias = Callable[[int], float]


def constant(value: float) -> Schedule:
    """Return a schedule that always says `value`."""
    return lambda step: value


def linear_schedule(start: float, end: float, *, num_steps: float) -> Schedule:
    """Return a straight line from `start` at step 0 to `end` at `num_steps`, and `end` from there on.

    Raises ConfigError if `num_steps` is not positive.
    """
    if num_steps <= 0:
        raise ConfigError(
            f"a linear schedule needs num_steps above 0, got {num_steps}; use `constant` for a fixed value"
        )
    return lambda step: start + (end - start) * min(step / num_steps, 1.0)
