"""Map actions between [-1, 1], where policies think, and the bounds of an env."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ding_like.errors import ConfigError
from ding_like.types import Array

if TYPE_CHECKING:
    from torch import Tensor


class ActionRange:
    """Scale each dimension of an action by its bounds: -1 is `low`, 1 is `high`, `centre` and `half` its width between.

    All four are float32 [A]. `(action - centre) / half` is the way back.
    Raises ConfigError for bounds that are not finite, or not in order.
    """

    def __init__(self, low: float | Sequence[float], high: float | Sequence[float]) -> None:
        self.low, self.high = (np.array(side, np.float32, ndmin=1) for side in (low, high))
        if not (np.isfinite(self.low).all() and np.isfinite(self.high).all()):
            raise ConfigError(
                f"actions have the bounds {self.low.tolist()} to {self.high.tolist()}, but this policy needs finite "
                "ones: set policy.action_low and policy.action_high, or bound the env's actions in a wrapper"
            )
        if not (self.low < self.high).all():
            raise ConfigError(f"action_low {self.low.tolist()} must be below action_high {self.high.tolist()}")
        self.centre: Array = (self.high + self.low) / 2
        self.half: Array = (self.high - self.low) / 2

    def to_env(self, action: Array) -> Array:
        """Return actions [R, A] of [-1, 1] in the env's units; what lies outside is cut to the bounds."""
        scaled: Array = action * self.half
        scaled += self.centre
        np.maximum(scaled, self.low, out=scaled)
        np.minimum(scaled, self.high, out=scaled)
        return scaled

    def tensor_to_env(self, action: Tensor) -> Tensor:
        """Do what `to_env` does, with tensors."""
        import torch  # actors have none

        low, high, centre, half = (
            torch.as_tensor(each, device=action.device) for each in (self.low, self.high, self.centre, self.half)
        )
        return torch.minimum(torch.maximum(action * half + centre, low), high)
