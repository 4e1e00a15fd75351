"""What several seeds are worth, against slow and obvious versions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ding_like.report.scores import (
    estimate,
    improvement,
    interquartile_mean,
    mean,
    probability_of_improvement,
)


def slow_iqm(values: list[float]) -> float:
    ordered, cut = sorted(values), len(values) // 4
    middle = ordered[cut : len(values) - cut]
    return sum(middle) / len(middle)


def slow_probability(x: list[float], y: list[float]) -> float:
    won = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a in x for b in y)
    return won / (len(x) * len(y))


def test_interquartile_mean_is_the_mean_of_the_middle_half() -> None:
    for count in range(1, 13):
        values = np.random.default_rng(count).normal(size=count).tolist()

        assert float(interquartile_mean(np.array(values))) == pytest.approx(slow_iqm(values))


@pytest.mark.parametrize(
    ("statistic", "slow"), [(mean, lambda values: sum(values) / 5), (interquartile_mean, slow_iqm)]
)
def test_the_interval_is_that_of_all_resamples(statistic, slow) -> None:
    scores = [392.1, 287.6, 406.8, 246.2, 500.0]
    every = [slow(list(drawn)) for drawn in itertools.product(scores, repeat=5)]  # 3,125 equally likely ones
    ends = np.quantile(every, (0.025, 0.975))

    found = estimate(scores, statistic)

    assert found.value == pytest.approx(slow(scores))
    assert found.interval == pytest.approx(tuple(ends), abs=0.01 * (ends[1] - ends[0]))


@pytest.mark.parametrize("seed", range(5))
def test_probability_of_improvement_counts_pairs_and_half_of_ties(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 6, 7).tolist(), rng.integers(0, 6, 4).tolist()

    assert probability_of_improvement(x, y) == pytest.approx(slow_probability(x, y))
    assert probability_of_improvement(x, y) + probability_of_improvement(y, x) == pytest.approx(1.0)


def test_the_interval_of_an_improvement_draws_both_sides_apart() -> None:
    x, y = [1.0, 5.0, 9.0], [2.0, 5.0, 7.0]
    every = [
        slow_probability(list(a), list(b))
        for a in itertools.product(x, repeat=3)
        for b in itertools.product(y, repeat=3)
    ]

    found = improvement(x, y)

    assert found.value == pytest.approx(slow_probability(x, y))
    assert found.interval == pytest.approx(tuple(np.quantile(every, (0.025, 0.975))), abs=1e-9)


def test_one_seed_has_no_interval() -> None:
    assert estimate([7.0], interquartile_mean).interval is None
    assert improvement([7.0], [1.0, 2.0]).interval is None and improvement([7.0], [1.0, 2.0]).value == 1.0


def test_equal_scores_have_an_interval_of_no_width() -> None:
    assert estimate([500.0] * 5, mean).interval == (500.0, 500.0)


def test_the_same_scores_give_the_same_figures() -> None:
    scores = np.random.default_rng(0).normal(size=8).tolist()

    assert estimate(scores, mean) == estimate(scores, mean)
    assert improvement(scores, scores[:5]) == improvement(scores, scores[:5])


@pytest.mark.slow
def test_hundreds_of_seeds_are_drawn_in_pieces() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=300), rng.normal(size=300)

    found = estimate(x.tolist(), mean)

    error = x.std() / 300**0.5
    assert found.interval == pytest.approx((x.mean() - 1.96 * error, x.mean() + 1.96 * error), abs=0.1 * error)
    assert improvement(x.tolist(), y.tolist()).value == pytest.approx(slow_probability(x.tolist(), y.tolist()))
