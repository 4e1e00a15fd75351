"""Compute what several seeds are worth, by the definitions of Agarwal et al. 2021 (rliable).

"Deep Reinforcement Learning at the Edge of the Statistical Precipice", NeurIPS 2021: interquartile mean, percentile
bootstrap over seeds, stratified by experiment, and the probability of improvement. Of one env, so there is one task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ding_like.types import Array
from ding_like.utils.seeding import make_rng

CONFIDENCE = 0.95
# Ends are steady to less than what is printed; rliable draws as many.
RESAMPLES = 50_000
_CHUNK = 4_000_000  # numbers that are drawn at once


@dataclass(frozen=True)
class Estimate:
    """Hold a value with the ends of its 95 % interval, None where there are too few seeds for one."""

    value: float
    interval: tuple[float, float] | None


def interquartile_mean(values: Array) -> Array:
    """Return the mean of the middle half along the last axis: a quarter of the values, rounded down, goes at each end.

    As scipy.stats.trim_mean(values, 0.25).
    """
    ordered = np.sort(np.asarray(values, np.float64), axis=-1)
    cut = ordered.shape[-1] // 4
    middle: Array = ordered[..., cut : ordered.shape[-1] - cut].mean(axis=-1)
    return middle


def mean(values: Array) -> Array:
    """Return the mean along the last axis."""
    average: Array = np.asarray(values, np.float64).mean(axis=-1)
    return average


def estimate(scores: Sequence[float], statistic: Callable[[Array], Array]) -> Estimate:
    """Return a statistic of the scores of seeds, with its percentile bootstrap interval; needs one score at least.

    `statistic` works along the last axis. One seed has no interval.
    """
    sample = np.asarray(scores, np.float64)
    value = float(statistic(sample))
    if len(sample) < 2:
        return Estimate(value, None)
    rng = make_rng(0, "scores")
    parts = [
        statistic(sample[rng.integers(len(sample), size=(count, len(sample)))])
        for count in _chunks(len(sample))
    ]  # fmt: skip
    return Estimate(value, _ends(np.concatenate(parts)))


def probability_of_improvement(x: Sequence[float], y: Sequence[float]) -> float:
    """Return how probable it is that a run of X scores more than a run of Y, a tie counting half.

    1/(NM) sum over all pairs of [x > y] + [x = y] / 2: 0.5 where nothing tells them apart.
    """
    return float(_wins(x, y).mean())


def improvement(x: Sequence[float], y: Sequence[float]) -> Estimate:
    """Return the probability of improvement of X over Y, with its interval: the seeds of each are drawn apart.

    Experiments of one seed have no interval.
    """
    value = probability_of_improvement(x, y)
    if len(x) < 2 or len(y) < 2:
        return Estimate(value, None)
    wins, rng = _wins(x, y), make_rng(0, "improvement")
    parts = []
    for count in _chunks(len(x) + len(y)):
        # How often each seed is drawn: the mean over the drawn pairs is a product of these.
        drawn_x = rng.multinomial(len(x), np.full(len(x), 1 / len(x)), size=count)
        drawn_y = rng.multinomial(len(y), np.full(len(y), 1 / len(y)), size=count)
        parts.append(((drawn_x @ wins) * drawn_y).sum(axis=1) / (len(x) * len(y)))
    return Estimate(value, _ends(np.concatenate(parts)))


def _wins(x: Sequence[float], y: Sequence[float]) -> Array:
    """Return [N, M]: 1 where x is more than y, a half where they are equal."""
    left, right = np.asarray(x, np.float64)[:, None], np.asarray(y, np.float64)[None, :]
    wins: Array = (left > right) + 0.5 * (left == right)
    return wins


def _chunks(width: int) -> list[int]:
    """Return how many resamples of so many numbers are drawn at a time."""
    size = max(_CHUNK // width, 1)
    return [min(size, RESAMPLES - begin) for begin in range(0, RESAMPLES, size)]


def _ends(values: Array) -> tuple[float, float]:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(values, (tail, 1 - tail))
    return float(low), float(high)
