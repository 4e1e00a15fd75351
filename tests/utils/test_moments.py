"""Counts, means and variances of parts merge into those of all the data."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import torch

from ding_like.errors import CheckpointError, ConfigError
from ding_like.utils import measure as timing
from ding_like.utils.measure import EasyTimer, Moments, Observer, merged
from ding_like.utils.seeding import MAX_SEED, make_rng, rng_state, set_pkg_seed, set_rng_state


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


def test_a_timer_tells_how_long_its_block_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing.time, "perf_counter", iter([10.0, 12.5]).__next__)

    with EasyTimer() as measured:
        pass

    assert measured.value == 2.5


def test_set_pkg_seed_repeats_python_numpy_and_torch() -> None:
    def draw() -> tuple[float, float, float]:
        set_pkg_seed(3)
        return random.random(), float(np.random.random()), float(torch.rand(()))

    assert draw() == draw()


def test_equal_arguments_give_equal_streams() -> None:
    assert make_rng(5, "collector", "3").random() == make_rng(5, "collector", "3").random()


def test_stream_is_the_same_in_every_version() -> None:
    # Recorded once: a change here makes old checkpoints and published seeds mean something else.
    assert make_rng(0, "collector").integers(0, 1000, 4).tolist() == [91, 382, 822, 507]


def test_other_seed_or_names_give_another_stream() -> None:
    for seed, names in [(5, ("learner",)), (6, ("collector",)), (5, ()), (5, ("collector", "collector"))]:
        assert make_rng(seed, *names).random() != make_rng(5, "collector").random()


def test_state_survives_json_and_continues_the_stream() -> None:
    rng = make_rng(0, "buffer")
    rng.integers(0, 10, dtype=np.uint32)  # half of a 64-bit draw: the other half is part of the state
    state = json.loads(json.dumps(rng_state(rng)))
    expected = rng.integers(0, 10, 20, dtype=np.uint32)

    other = make_rng(99)
    set_rng_state(other, state)

    assert np.array_equal(other.integers(0, 10, 20, dtype=np.uint32), expected)


def test_state_is_a_copy() -> None:
    rng = np.random.Generator(np.random.MT19937(0))  # its state holds an array
    state = rng_state(rng)
    expected = rng.random(700)  # more than one block, so the array changes

    set_rng_state(rng, state)

    assert np.array_equal(rng.random(700), expected)


def test_state_of_another_generator_is_refused() -> None:
    state = rng_state(np.random.Generator(np.random.MT19937(0)))

    with pytest.raises(CheckpointError, match="of 'MT19937', this run draws from 'PCG64'"):
        set_rng_state(make_rng(0), state)


def test_seed_out_of_range_is_refused() -> None:
    for seed in [-1, MAX_SEED + 1]:
        with pytest.raises(ConfigError, match=f"seed is {seed}"):
            make_rng(seed)
        with pytest.raises(ConfigError, match=f"seed is {seed}"):
            set_pkg_seed(seed)
