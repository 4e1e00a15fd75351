"""Streams of random numbers that depend on the seed and their names only."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import torch

from ding_like.errors import CheckpointError, ConfigError
from ding_like.utils.seeding import MAX_SEED, make_rng, rng_state, set_pkg_seed, set_rng_state


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
