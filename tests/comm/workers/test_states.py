"""States that travel as bytes: plain or compressed, they come back as they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ding_like.comm.workers.states import PackedState, pack_state, unpack_state
from ding_like.errors import CommError

STATE: dict[str, Any] = {
    "version": {"origin": 2**47, "number": 3},
    "parts": {"model": {"encoder.0/w": torch.arange(6.0).reshape(2, 3), "empty": torch.zeros(0)}},
    "rng": torch.arange(5, dtype=torch.uint8),
    "kl": torch.ones(1, dtype=torch.float64),
    "priority": np.float32([1.0, 2.0]),
    "lr": 1e-3,
    "done": True,
    "none": {},
}


def assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_same(one[name], other[name])
    elif isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype and torch.equal(one, other)
    else:
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("compress", [False, True])
def test_a_state_comes_back_as_it_was(compress: bool) -> None:
    assert_same(unpack_state(pack_state(STATE, compress=compress)), STATE)
    assert unpack_state(pack_state({}, compress=compress)) == {}


@pytest.mark.parametrize("compress", [False, True])
def test_what_is_read_may_be_written_to_though_its_bytes_may_not(compress: bool) -> None:
    packed = pack_state(STATE, compress=compress)
    packed.body.flags.writeable = False

    unpack_state(packed)["parts"]["model"]["encoder.0/w"].add_(1.0)

    assert_same(unpack_state(packed), STATE)


def test_compression_makes_repeated_numbers_small() -> None:
    state = {"w": torch.zeros(100_000)}

    assert pack_state(state, compress=True).body.size < pack_state(state).body.size / 50


def test_other_bytes_are_refused() -> None:
    body = pack_state(STATE, compress=True).body
    for wrong in (body[:-10], np.zeros(20, np.uint8), body[::-1].copy()):
        with pytest.raises(CommError, match="no compressed state"):
            unpack_state(PackedState(True, wrong))
    plain = pack_state(STATE)
    with pytest.raises(CommError, match="bytes"):
        unpack_state(PackedState(False, plain.body[:-1]))


def test_a_value_that_cannot_travel_is_named() -> None:
    with pytest.raises(CommError, match="a list at 'info/losses'"):
        pack_state({"info": {"losses": [1.0]}})
