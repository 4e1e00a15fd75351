"""Counts, means and variances of parts merge into those of all the data."""

from __future__ import annotations

import numpy as np
import pytest

from ding_like.utils.measure import Moments, Observer, merged


def split(values: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    cuts = np.sort(rng.integers(0, len(values) + 1, size=rng.integers(0, 9)))
    return np.split(values, cuts)


def assert_equal(found: Moments, values: np.ndarray) -> None:
    numbers = values.astype(np.float64)
    assert found.count == len(values)
    np.testing.assert_allclose(found.mean, numbers.mean(axis=0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.var, numbers.var(axis=0), rtol=1e-12, atol=0)


@pytest.mark.parametrize("shape", [(), (2, 4)])
def test_parts_in_any_split_give_what_all_the_data_give(shape: tuple[int, ...]) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        values = rng.normal(rng.normal(scale=10.0, size=shape), 1.0 + rng.random(shape), size=(500, *shape))
        parts = [Moments.of(each) for each in split(values, rng)]

        assert_equal(merged(parts), values)
        assert_equal(merged(parts[::-1]), values)


def test_whole_numbers_are_counted_in_float64() -> None:
    values = np.random.default_rng(0).integers(0, 256, size=(400, 5)).astype(np.uint8)

    assert_equal(merged([Moments.of(values[:150]), Moments.of(values[150:])]), values)


def test_parts_without_data_change_nothing() -> None:
    known = Moments.of(np.array([[1.0], [3.0]]))

    for found in (known.merge(Moments.empty((1,))), Moments.empty((1,)).merge(known)):
        assert found.count == 2 and found.mean == [2.0] and found.var == [1.0]
    assert Moments.of(np.zeros((0, 1))).count == 0 and Moments.empty((1,)).var == [1.0]


def test_parts_with_far_means_keep_their_digits() -> None:
    values = np.concatenate([np.random.default_rng(1).normal(each, 1.0, 100) for each in (1e6, -5e5, 2e6)])

    assert_equal(merged([Moments.of(each) for each in np.split(values, 3)]), values)


@pytest.mark.parametrize("shape", [(3,), (1 << 18,)], ids=["many", "large"])
def test_an_observer_knows_each_row_since_it_was_restarted(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(2).normal(5.0, 2.0, size=(600 if len(shape) and shape[0] < 9 else 6, *shape))
    observer = Observer(shape)
    for row in values:
        observer.add(row)

    assert_equal(observer.moments, values)
    observer.restart()
    assert observer.moments.count == 0
    observer.add(values[0])
    assert observer.moments.count == 1 and (observer.moments.mean == values[0]).all()
