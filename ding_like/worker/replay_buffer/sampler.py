"""Choose rows of a buffer by age (0 is the oldest)."""

from __future__ import annotations

import numpy as np

from ding_like.data.compiled import first_distinct
from ding_like.types import Array

_SPARE = 8  # draws beyond a sample's size: less than one is drawn twice where samples are small beside the buffer


def draw_uniform(rng: np.random.Generator, ages: range, size: int, *, replace: bool) -> Array:
    """Return `size` of `ages`, each as likely as any other and, without `replace`, none twice; int64[size]."""
    num_ages = len(ages)
    if replace:
        picks = _draw(rng, num_ages, size)
    elif size * size > num_ages:
        picks = rng.choice(num_ages, size, replace=False)
    else:
        picks = _draw_distinct(rng, num_ages, size)
    is_whole = ages.start == 0 and ages.step == 1
    return picks if is_whole else ages.start + picks * ages.step


def _draw(rng: np.random.Generator, num_ages: int, size: int) -> Array:
    # Half the time of `integers`; the 53 bits of a double favour none of 1e9 rows by more than 1e-7.
    places = rng.random(size)
    places *= num_ages
    return places.astype(np.int64)


def _draw_distinct(rng: np.random.Generator, num_ages: int, size: int) -> Array:
    """Draw one after another and pass over what was drawn before: even, as it treats all rows alike."""
    draws = rng.random(size + _SPARE)
    picks = first_distinct(draws, num_ages, size)
    while len(picks) < size:  # seldom, as rows are many
        draws = np.concatenate([draws, rng.random(size)])
        picks = first_distinct(draws, num_ages, size)
    return picks
