"""Draw exploration noise, for continuous actions or for noisy networks."""

from __future__ import annotations

import numpy as np

from ding_like.types import Array


def gaussian_noise(rows: int, size: int, *, sigma: float | Array, rng: np.random.Generator) -> Array:
    """Return normal noise [R, A], float32; `sigma` is one standard deviation, or one per row [R].

    Every call takes R * A numbers from `rng`, whatever sigma is: runs that differ in it stay comparable.
    """
    noise = rng.standard_normal((rows, size), dtype=np.float32)
    noise *= sigma if isinstance(sigma, (int, float)) else np.asarray(sigma, np.float32)[:, None]
    return noise


def factorised_noise(rows: int, size: int, *, rng: np.random.Generator) -> Array:
    """Return f(e) = sgn(e) sqrt(|e|) of standard normal e [R, P], float32: what noisy networks take.

    Source: Fortunato et al. 2018, section 3.
    """
    eps = rng.standard_normal((rows, size), dtype=np.float32)
    noise: Array = np.copysign(np.sqrt(np.abs(eps)), eps)
    return noise
