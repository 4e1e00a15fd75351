"""Statistics of episodes and seeds, against slow and obvious versions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ding_like.report.scores import (
    bootstrap_interval,
    estimate,
    improvement,
    interquartile_mean,
    mean,
    student_interval,
    student_quantile,
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

    assert found["value"] == pytest.approx(slow(scores))
    assert found["interval"] == pytest.approx(ends, abs=0.01 * (ends[1] - ends[0]))


@pytest.mark.parametrize("seed", range(5))
def test_probability_of_improvement_counts_pairs_and_half_of_ties(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 6, 7).tolist(), rng.integers(0, 6, 4).tolist()

    assert improvement(x, y)["value"] == pytest.approx(slow_probability(x, y))
    assert improvement(x, y)["value"] + improvement(y, x)["value"] == pytest.approx(1.0)


def test_the_interval_of_an_improvement_draws_both_sides_apart() -> None:
    x, y = [1.0, 5.0, 9.0], [2.0, 5.0, 7.0]
    every = [
        slow_probability(list(a), list(b))
        for a in itertools.product(x, repeat=3)
        for b in itertools.product(y, repeat=3)
    ]

    found = improvement(x, y)

    assert found["value"] == pytest.approx(slow_probability(x, y))
    assert found["interval"] == pytest.approx(np.quantile(every, (0.025, 0.975)), abs=1e-9)


def test_one_seed_has_no_interval() -> None:
    assert estimate([7.0], interquartile_mean)["interval"] is None
    assert improvement([7.0], [1.0, 2.0])["interval"] is None and improvement([7.0], [1.0, 2.0])["value"] == 1.0


def test_equal_scores_have_an_interval_of_no_width() -> None:
    assert estimate([500.0] * 5, mean)["interval"] == [500.0, 500.0]


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
    assert found["interval"] == pytest.approx([x.mean() - 1.96 * error, x.mean() + 1.96 * error], abs=0.1 * error)
    assert improvement(x.tolist(), y.tolist())["value"] == pytest.approx(slow_probability(x.tolist(), y.tolist()))


def test_bootstrap_agrees_with_students_interval_on_many_values() -> None:
    values = np.random.default_rng(0).normal(100, 20, 400)

    low, high = bootstrap_interval(values)

    half = 1.96 * values.std() / np.sqrt(400)
    assert low == pytest.approx(values.mean() - half, abs=0.2)
    assert high == pytest.approx(values.mean() + half, abs=0.2)


def test_equal_values_leave_nothing_open() -> None:
    for values in [[500.0] * 20, [3.0]]:
        assert bootstrap_interval(values) == [values[0], values[0]]


def test_bootstrap_stays_within_the_range_of_the_values() -> None:
    low, high = bootstrap_interval([0.0, 500.0, 500.0])

    assert 0.0 <= low < 333.3 < high <= 500.0


# From a table of Student's t.
def test_students_quantile_matches_the_table() -> None:
    for freedom, quantile in [(3, 3.182), (4, 2.776), (9, 2.262), (19, 2.093), (120, 1.980)]:
        assert student_quantile(np.array(freedom)) == pytest.approx(quantile, rel=0.02)


def test_students_interval_by_hand() -> None:
    # Four values 8, 10, 10, 12: mean 10, std sqrt(2), standard error sqrt(2 / 3), t = 3.182.
    low, high = student_interval(
        np.array([10.0]), np.array([2**0.5]), np.array([4]), low=np.array([0.0]), high=np.array([20.0])
    )

    assert high[0] - 10 == pytest.approx(3.182 * (2 / 3) ** 0.5, rel=0.02)
    assert 10 - low[0] == pytest.approx(high[0] - 10)


def test_students_interval_ends_at_the_extreme_values_and_is_a_point_for_one() -> None:
    mean, std, count = np.array([499.0, 7.0]), np.array([10.0, 0.0]), np.array([4, 1])

    low, high = student_interval(mean, std, count, low=np.array([480.0, 7.0]), high=np.array([500.0, 7.0]))

    assert high.tolist() == [500.0, 7.0]
    assert low[1] == 7.0
