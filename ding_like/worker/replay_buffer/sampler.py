"""Choose rows of a buffer by age (0 is the oldest)."""

from __future__ import annotations

import numpy as np

from ding_like.types import Array


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
    """Draw anew until none comes twice: even, as it treats all rows alike, and fast while that is rare."""
    while True:
        picks = _draw(rng, num_ages, size)
        ordered = picks.copy()
        ordered.sort()
        if not np.count_nonzero(ordered[1:] == ordered[:-1]):
            return picks
