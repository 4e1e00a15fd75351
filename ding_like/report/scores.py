"""Statistics of a few episodes or seeds: confidence intervals, interquartile mean, probability of improvement; and
numbers as text for people.

Over seeds by the definitions of Agarwal et al. 2021 (rliable), "Deep Reinforcement Learning at the Edge of the
Statistical Precipice", NeurIPS 2021: percentile bootstrap, stratified by experiment. Of one env, so there is one task.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypedDict

import numpy as np

from ding_like.data.team import RETURN_OF
from ding_like.types import Array
from ding_like.utils.seeding import make_rng

CONFIDENCE = 0.95
# Ends are steady to less than what is printed; rliable draws as many.
RESAMPLES = 50_000
# Enough for the episodes of one evaluation: ends are steady to 2 % of the interval's width.
_EPISODE_RESAMPLES = 2000
_CHUNK = 4_000_000  # numbers that are drawn at once
_Z = 1.959964  # the normal distribution's 97.5 % quantile


class Estimate(TypedDict):
    """Value with the ends of its 95 % interval, None where there are too few seeds for one; JSON holds it so."""

    value: float
    interval: list[float] | None


def interquartile_mean(values: Array) -> Array:
    """Return the mean of the middle half along the last axis, as scipy.stats.trim_mean(values, 0.25)."""
    ordered = np.sort(np.asarray(values, np.float64), axis=-1)
    cut = ordered.shape[-1] // 4
    middle: Array = ordered[..., cut : ordered.shape[-1] - cut].mean(axis=-1)
    return middle


def mean(values: Array) -> Array:
    """Return the mean along the last axis."""
    average: Array = np.asarray(values, np.float64).mean(axis=-1)
    return average


def estimate(scores: Sequence[float], statistic: Callable[[Array], Array]) -> Estimate:
    """Return a statistic, taken along the last axis, of the scores of one seed or more, with its bootstrap interval."""
    sample = np.asarray(scores, np.float64)
    if len(sample) < 2:
        return Estimate(value=float(statistic(sample)), interval=None)
    rng = make_rng(0, "scores")
    drawn = [statistic(_resamples(sample, count, rng)) for count in _chunks(len(sample))]
    return Estimate(value=float(statistic(sample)), interval=_ends(np.concatenate(drawn)))


def improvement(x: Sequence[float], y: Sequence[float]) -> Estimate:
    """Return how probable it is that a run of X scores more than a run of Y, a tie counting half.

    1/(NM) sum over all pairs of [x > y] + [x = y] / 2. For the interval the seeds of each are drawn apart; experiments
    of one seed have none.
    """
    left, right = np.asarray(x, np.float64)[:, None], np.asarray(y, np.float64)[None, :]
    wins = (left > right) + 0.5 * (left == right)
    if min(wins.shape) < 2:
        return Estimate(value=float(wins.mean()), interval=None)
    rng, drawn = make_rng(0, "improvement"), []
    for count in _chunks(len(x) + len(y)):
        # How often each seed is drawn: the mean over the drawn pairs is a product of these.
        times_x, times_y = (rng.multinomial(size, np.full(size, 1 / size), size=count) for size in wins.shape)
        drawn.append(((times_x @ wins) * times_y).sum(axis=1) / wins.size)
    return Estimate(value=float(wins.mean()), interval=_ends(np.concatenate(drawn)))


def bootstrap_interval(values: Sequence[float]) -> list[float]:
    """Return the ends of the 95 % bootstrap interval of the mean of at least one episode (Efron 1979, percentiles).

    It lies within the range of the values, so that episodes that all reached the maximum give no interval beyond it.
    """
    drawn = _resamples(np.asarray(values, np.float64), _EPISODE_RESAMPLES, make_rng(0, "interval"))
    return _ends(drawn.mean(axis=1))


def student_interval(mean: Array, std: Array, count: Array, *, low: Array, high: Array) -> tuple[Array, Array]:
    """Return the ends of 95 % intervals of means of which only the moments are left, by Student's t.

    `std` is that of `count` values around their mean (divided by `count`); `low` and `high` are the smallest and the
    largest value, which no interval exceeds. One value gives an interval of no width.
    """
    freedom = np.maximum(count - 1, 1)
    half = np.where(count > 1, student_quantile(freedom) * std / np.sqrt(freedom), 0.0)
    return np.maximum(mean - half, low), np.minimum(mean + half, high)


def student_quantile(freedom: Array) -> Array:
    """Return the 97.5 % quantile of Student's t, within 2 % from 3 degrees of freedom and 5 % below the truth at 2.

    The first terms of its Cornish-Fisher expansion (Abramowitz and Stegun 1964, 26.7.5).
    """
    z, n = _Z, np.asarray(freedom, np.float64)
    first: Array = (z**3 + z) / (4 * n)
    second = (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    return z + first + second + third


def _resamples(sample: Array, count: int, rng: np.random.Generator) -> Array:
    """Return [count, N] values drawn from the N given with replacement."""
    drawn: Array = sample[rng.integers(len(sample), size=(count, len(sample)))]
    return drawn


def _chunks(width: int) -> Iterator[int]:
    """Yield how many resamples of so many numbers are drawn at a time."""
    size = max(_CHUNK // width, 1)
    for begin in range(0, RESAMPLES, size):
        yield min(size, RESAMPLES - begin)


def _ends(values: Array) -> list[float]:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(values, (tail, 1 - tail))
    return [float(low), float(high)]


def measure(value: float) -> str:
    """Return a measured value with the digits that matter: 0.0213, 46.2, 3,240; "-" for what is not there."""
    if not math.isfinite(value):
        return "-" if math.isnan(value) else str(value)
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}".removesuffix(".0") if abs(value) >= 10 else f"{value:.3g}"


def by_agent(metrics: Mapping[str, float]) -> str:
    """Return what agents of a team were paid, as text: 'agent_0 -22.7, agent_1 -22.5'; "" where there is no team."""
    own = {name: value for name, value in metrics.items() if name.startswith(RETURN_OF)}
    return ", ".join(f"{name.removeprefix(RETURN_OF)} {measure(value)}" for name, value in own.items())


def short(value: float) -> str:
    """Return a count in at most four figures: 500, 20k, 17.9k, 1.5M, 1e+10."""
    for limit, unit in ((1e3, ""), (1e6, "k"), (1e9, "M")):
        if abs(value) < limit:
            scaled = value * 1e3 / limit
            return f"{scaled:.3g}{unit}" if abs(scaled) < 999.5 else f"{scaled:.0f}{unit}"
    return f"{value:.3g}"


def clock(seconds: float) -> str:
    """Return a duration as h:mm:ss."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}"


def interval(low: float, high: float) -> str:
    """Return the ends of an interval as [low, high]."""
    return f"[{measure(low)}, {measure(high)}]"
