"""Choose rows of a buffer by age (0 is the oldest)."""

from __future__ import annotations

import numpy as np

from ding_like.types import Array


def draw_uniform(rng: np.random.Generator, ages: range, size: int, *, replace: bool) -> Array:
    """Return `size` of `ages`, each as likely as any other and, without `replace`, none twice; int64[size]."""
    if replace:
        picks = rng.integers(len(ages), size=size)
    else:
        picks = rng.choice(len(ages), size, replace=False)
    is_whole = ages.start == 0 and ages.step == 1
    return picks if is_whole else ages.start + picks * ages.step
