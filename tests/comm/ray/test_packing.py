"""Rows and states come back from their bytes as they were; other bytes are refused."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.comm.tensors import pack_rows, pack_state, unpack_rows, unpack_state
from ding_like.data.batch import TransitionBatch
from ding_like.errors import CommError, ConfigError

WIDE = np.arange(40.0).reshape(10, 4)
ROWS = TransitionBatch(
    {
        "obs/image": np.arange(240, dtype=np.uint8).reshape(5, 3, 4, 4),
        "action": np.arange(5),
        "reward": np.array([np.nan, np.inf, -0.0, 1.0, 2.0], np.float32),
        "a/view": WIDE[::2, 1:3],
        "terminated": np.arange(5) > 3,
    }
)

W = torch.arange(6.0).reshape(2, 3)
STATE: dict[str, Any] = {
    "version": {"origin": 2**47, "number": 3},
    "parts": {"model": {"encoder.0/w": W, "tied": W, "transposed": W.T, "empty": torch.zeros(0)}},
    "rng": torch.arange(5, dtype=torch.uint8),
    "priority": np.float32([1.0, 2.0]),
    "lr": 1e-3,
    "done": True,
    "none": {},
}


def test_rows_come_back_bit_for_bit_in_order_and_may_be_written() -> None:
    found = unpack_rows(pack_rows(ROWS)).columns

    assert list(found) == list(ROWS.columns)
    for name, column in ROWS.columns.items():
        assert found[name].dtype == column.dtype and found[name].shape == column.shape, name
        assert found[name].tobytes() == column.tobytes() and found[name].flags.writeable, name


def test_repeated_numbers_become_small() -> None:
    assert len(pack_rows(TransitionBatch({"obs": np.zeros((1000, 84), np.float32)}))) < 7_000
    state = {"w": torch.zeros(100_000)}
    assert pack_state(state, compress=True).size < pack_state(state).size / 50


def test_frames_that_were_cut_off_or_changed_are_refused() -> None:
    frame = pack_rows(ROWS)
    changed = bytearray(frame)
    changed[len(frame) // 2] ^= 0x40
    for wrong in (b"", frame[:7], frame[:-1], bytes(changed), b"no frame"):
        with pytest.raises(CommError):
            unpack_rows(wrong)


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
def test_a_state_comes_back_as_it_was_and_may_be_written(compress: bool) -> None:
    packed = pack_state(STATE, compress=compress)
    assert_same(unpack_state(packed), STATE)
    unpack_state(packed)["parts"]["model"]["tied"].add_(1.0)
    assert_same(unpack_state(packed), STATE)
    assert unpack_state(pack_state({}, compress=compress)) == {}


def test_other_bytes_are_no_state() -> None:
    for body in (pack_state(STATE)[:-1], pack_state(STATE, compress=True)[:-10], np.zeros(20, np.uint8)):
        with pytest.raises(CommError, match="bytes are no"):
            unpack_state(body)


def test_a_value_that_cannot_travel_is_named() -> None:
    with pytest.raises(CommError, match="a list at 'info/losses'"):
        pack_state({"info": {"losses": [1.0]}})


def test_without_lz4_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lz4.frame", None)

    with pytest.raises(ConfigError, match=r'pip install "ding-like\[ray\]"'):
        pack_rows(ROWS)
