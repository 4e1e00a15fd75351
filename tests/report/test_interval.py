import numpy as np
import pytest

from ding_like.report.interval import bootstrap_interval, student_interval, student_quantile


def test_bootstrap_agrees_with_students_interval_on_many_values():
    values = np.random.default_rng(0).normal(100, 20, 400)

    low, high = bootstrap_interval(values, rng=np.random.default_rng(1))

    half = 1.96 * values.std() / np.sqrt(400)
    assert low == pytest.approx(values.mean() - half, abs=0.2)
    assert high == pytest.approx(values.mean() + half, abs=0.2)


def test_equal_values_leave_nothing_open():
    for values in [[500.0] * 20, [3.0]]:
        assert bootstrap_interval(values, rng=np.random.default_rng(0)) == (values[0], values[0])


def test_bootstrap_stays_within_the_range_of_the_values():
    low, high = bootstrap_interval([0.0, 500.0, 500.0], rng=np.random.default_rng(0))

    assert 0.0 <= low < 333.3 < high <= 500.0


# From a table of Student's t.
def test_students_quantile_matches_the_table():
    for freedom, quantile in [(3, 3.182), (4, 2.776), (9, 2.262), (19, 2.093), (120, 1.980)]:
        assert student_quantile(np.array(freedom)) == pytest.approx(quantile, rel=0.02)


def test_students_interval_by_hand():
    # Four values 8, 10, 10, 12: mean 10, std sqrt(2), standard error sqrt(2 / 3), t = 3.182.
    low, high = student_interval(
        np.array([10.0]), np.array([2**0.5]), np.array([4]), low=np.array([0.0]), high=np.array([20.0])
    )

    assert high[0] - 10 == pytest.approx(3.182 * (2 / 3) ** 0.5, rel=0.02)
    assert 10 - low[0] == pytest.approx(high[0] - 10)


def test_students_interval_ends_at_the_extreme_values_and_is_a_point_for_one():
    mean, std, count = np.array([499.0, 7.0]), np.array([10.0, 0.0]), np.array([4, 1])

    low, high = student_interval(mean, std, count, low=np.array([480.0, 7.0]), high=np.array([500.0, 7.0]))

    assert high.tolist() == [500.0, 7.0]
    assert low[1] == 7.0
