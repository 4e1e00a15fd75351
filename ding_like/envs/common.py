"""What envs written for DI-engine import from its `ding.envs.common`."""

from __future__ import annotations

import numpy as np

from ding_like.errors import ConfigError
from ding_like.types import Array


def affine_transform(
    data: Array,
    action_clip: bool = True,
    alpha: float | None = None,
    beta: float | None = None,
    min_val: Array | float | None = None,
    max_val: Array | float | None = None,
) -> Array:
    """Return `alpha * data + beta`, clipped to [-1, 1] before with `action_clip`.

    Instead of `alpha` and `beta`, `min_val` and `max_val` are where -1 and 1 go. Raises ConfigError without either.
    """
    values: Array = np.clip(data, -1.0, 1.0) if action_clip else np.asarray(data)
    if min_val is not None and max_val is not None:
        half = (np.asarray(max_val) - np.asarray(min_val)) / 2
        stretched: Array = np.asarray(min_val) + half + half * values
        return stretched
    if alpha is None:
        raise ConfigError("affine_transform needs min_val and max_val, or alpha.")
    scaled: Array = alpha * values + (0.0 if beta is None else beta)
    return scaled
