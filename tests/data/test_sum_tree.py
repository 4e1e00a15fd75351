"""The sum tree does what a plain array does, in numpy and in its compiled part alike."""

from __future__ import annotations

import functools
import logging
from typing import Any

import numpy as np
import pytest

from ding_like.data import sum_tree
from ding_like.errors import ConfigError

SumTree: Any = sum_tree.SumTree

CAPACITIES = [1, 32, 1025, 200_000]  # the last has a level between the blocks and the top


@pytest.fixture(autouse=True, params=["numpy", "compiled"])
def choose_part(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every test in numpy and, where there was a compiler, in the compiled part."""
    if request.param == "compiled" and sum_tree.compiled_part() is None:
        pytest.skip("the compiled part was not built")
    chosen = functools.partial(sum_tree.SumTree, compiled=request.param == "compiled")
    monkeypatch.setitem(globals(), "SumTree", chosen)


def model_find(weights: np.ndarray, prefix: np.ndarray) -> np.ndarray:
    return weights.astype(np.float64).cumsum().searchsorted(prefix, side="right")


def integer_weights(rng: np.random.Generator, size: int) -> np.ndarray:
    """Return weights whose sums are exact, half of them 0."""
    return (rng.integers(0, 10, size) * rng.integers(0, 2, size)).astype(np.float32)


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_random_operations_are_as_on_a_plain_array(capacity: int) -> None:
    rng = np.random.default_rng(capacity)
    tree, plain = SumTree(capacity), np.zeros(capacity, np.float32)
    for _ in range(30):
        start, stop = sorted(rng.integers(0, capacity + 1, 2).tolist())
        plain[start:stop] = weights = integer_weights(rng, stop - start)
        tree.set_range(start, stop, weights)
        if rng.random() < 0.7:
            places = rng.permutation(capacity)[: rng.integers(1, 100)]
            plain[places] = weights = integer_weights(rng, len(places))
            tree.set(places, weights)
        if rng.random() < 0.3:
            continue  # several writes before the next read

        total = plain.sum(dtype=np.float64)
        assert tree.total == total
        np.testing.assert_array_equal(tree.leaves_view[:capacity], plain)
        positive = plain[plain > 0]
        assert tree.min_positive() == positive.min(initial=np.inf)
        if total:
            # Whole numbers fall on the borders between places, the others between them.
            prefix = np.concatenate([rng.random(50) * total, rng.integers(0, int(total), 50)])
            np.testing.assert_array_equal(tree.find(prefix), model_find(plain, prefix))


@pytest.mark.parametrize(("capacity", "num"), [(1000, 3), (200_000, 1001)])
def test_weights_of_any_size_are_found_between_their_prefix_sums(capacity: int, num: int) -> None:
    rng = np.random.default_rng(num)
    weights = rng.exponential(1.0, capacity).astype(np.float32) ** 8
    tree = SumTree(capacity)
    tree.set_range(0, capacity, weights)
    prefix = rng.permutation((np.arange(num) + rng.random(num)) / num) * tree.total  # in no order

    found = tree.find(prefix)

    ends = weights.astype(np.float64).cumsum()
    rounding = 1e-12 * tree.total
    assert (ends[found] > prefix - rounding).all()
    assert (ends[found] - weights[found] <= prefix + rounding).all()


def test_sums_depend_on_the_weights_and_on_no_order_of_writes() -> None:
    rng = np.random.default_rng(0)
    weights = rng.exponential(1.0, 5000).astype(np.float32)
    at_once, in_parts = SumTree(5000), SumTree(5000)
    at_once.set_range(0, 5000, weights)
    for places in np.array_split(rng.permutation(5000), 77):
        in_parts.set(places, weights[places])

    assert at_once.total == in_parts.total


def test_of_a_place_that_comes_twice_the_last_weight_stays() -> None:
    tree = SumTree(64)
    tree.set(np.array([3, 40, 3]), np.array([1.0, 2.0, 5.0]))
    tree.set(np.arange(0), np.arange(0.0))  # an empty write changes nothing
    assert tree.total == 7
    assert tree.get(np.array([3, 40, 0])).tolist() == [5, 2, 0]


def test_a_prefix_at_the_very_end_finds_the_last_place_with_a_weight() -> None:
    for capacity in (1, 2, 31, 33, 1000, 1025, 200_000):
        tree, last = SumTree(capacity), capacity // 2
        tree.set_range(0, last + 1, np.float32(0.1))
        prefix = np.array([np.nextafter(tree.total, 0), tree.total, np.nextafter(tree.total, np.inf)])
        assert tree.find(prefix).tolist() == [last] * 3
        assert tree.find(np.zeros(1)).tolist() == [0]


@pytest.mark.parametrize("capacity", [33, 200_000])
def test_no_place_of_weight_zero_is_found(capacity: int) -> None:
    rng = np.random.default_rng(0)
    weights = rng.random(capacity).astype(np.float32) ** 20
    weights[rng.random(capacity) < 0.9] = 0.0
    weights[capacity // 3] = 1e-30
    tree = SumTree(capacity)
    tree.set_range(0, capacity, weights)

    found = tree.find(np.linspace(0, tree.total, 10_001))

    assert (weights[found] > 0).all()


def test_weights_of_all_sizes_live_together() -> None:
    tree = SumTree(100)
    tree.set_range(0, 100, np.float32(1e-30))
    tree.set(np.array([50]), np.array([1e30]))
    assert tree.find(np.array([0.0, 5e29])).tolist() == [0, 50]
    assert tree.min_positive() == np.float32(1e-30)

    tree.set(np.array([50]), np.array([0.0]))
    assert tree.total == pytest.approx(99e-30)  # nothing is left of the large one


def test_clear_sets_all_to_zero() -> None:
    tree = SumTree(200_000)
    tree.set_range(0, 200_000, 1.0)
    tree.set(np.array([7]), np.array([3.0]))
    tree.clear()
    assert (tree.total, tree.min_positive()) == (0.0, np.inf)
    assert not tree.leaves_view.any()


def test_a_tree_without_places_is_refused() -> None:
    with pytest.raises(ConfigError, match="0 places"):
        SumTree(0)


@pytest.mark.slow
def test_sums_do_not_drift_in_ten_million_updates() -> None:
    rng = np.random.default_rng(0)
    capacity, batch = 200_000, 2_000
    tree = SumTree(capacity)
    tree.set_range(0, capacity, 1.0)
    for _ in range(10_000_000 // batch):
        tree.set(rng.integers(0, capacity, batch), rng.exponential(1.0, batch) ** 8)

    leaves = tree.leaves_view[:capacity]
    fresh = SumTree(capacity)
    fresh.set_range(0, capacity, leaves)
    prefix = (np.arange(1000) + 0.5) / 1000
    assert tree.total == fresh.total == pytest.approx(leaves.sum(dtype=np.float64), rel=1e-12)
    np.testing.assert_array_equal(tree.find(prefix * tree.total), fresh.find(prefix * fresh.total))


def test_it_is_said_once_which_part_runs(caplog: pytest.LogCaptureFixture) -> None:
    sum_tree.compiled_part.cache_clear()
    with caplog.at_level(logging.INFO, logger=sum_tree.__name__):
        sum_tree.SumTree(4)
        sum_tree.SumTree(4)

    assert [record.message.partition(" in ")[0] for record in caplog.records] == ["replay buffers run"]


def test_without_a_compiler_numpy_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sum_tree, "compiled_part", lambda: None)
    tree = sum_tree.SumTree(10)
    tree.set_range(0, 10, np.float32(1))

    assert tree.find(np.array([3.5])).tolist() == [3]
    with pytest.raises(ConfigError, match="was not built"):
        sum_tree.SumTree(10, compiled=True)
