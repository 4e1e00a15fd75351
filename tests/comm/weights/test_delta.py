"""What changed, applied to what was, is what is; anything else is refused."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ding_like.comm.tensors import BLOCK, MAGIC, apply_delta, delta, is_delta
from ding_like.errors import CommError
from ding_like.types import Array


def some_bytes(size: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_delta_restores_the_new_bytes_whatever_the_lengths(data: st.DataObject) -> None:
    sizes = st.integers(0, 5 * BLOCK + 7) | st.sampled_from([k * BLOCK for k in range(6)])
    old = some_bytes(data.draw(sizes))
    new = np.resize(old, data.draw(st.just(old.size) | sizes)) if old.size else some_bytes(data.draw(sizes))
    new = new.copy()
    for at in data.draw(st.lists(st.integers(0, max(new.size - 1, 0)), max_size=3)):
        new[at : at + 1] ^= 0xFF

    changes = delta(old, new)

    assert changes is None or changes.size < new.size
    if changes is not None:
        assert is_delta(changes)
        np.testing.assert_array_equal(apply_delta(old, changes), new)


def test_one_changed_byte_sends_one_block() -> None:
    old = some_bytes(100 * BLOCK)
    new = old.copy()
    new[5 * BLOCK] ^= 1

    changes = delta(old, new)

    assert changes is not None and changes.size < BLOCK + 64


def test_where_everything_changed_there_is_no_delta() -> None:
    assert delta(some_bytes(10 * BLOCK, 0), some_bytes(10 * BLOCK, 1)) is None


def test_the_new_bytes_have_memory_of_their_own() -> None:
    old = some_bytes(3 * BLOCK)
    changes = delta(old, old)
    assert changes is not None
    before = old.copy()

    apply_delta(old, changes)[:] = 0

    np.testing.assert_array_equal(old, before)


def test_a_delta_to_other_bytes_is_refused() -> None:
    old, other = some_bytes(3 * BLOCK, 0), some_bytes(3 * BLOCK, 1)
    changes = delta(old, old)
    assert changes is not None

    with pytest.raises(CommError, match="checksum"):
        apply_delta(other, changes)
    with pytest.raises(CommError, match="in place of"):
        apply_delta(other[:-1], changes)


def forged(*, before: int, after: int, numbers: list[int], data: bytes, crc: int = 0) -> Array:
    head = struct.pack("<8sQQII", MAGIC, before, after, crc, len(numbers))
    body = np.array(numbers, np.uint32).tobytes() + data
    return np.frombuffer(head + body, np.uint8)


def test_what_is_no_delta_is_refused() -> None:
    for changes in (
        np.zeros(0, np.uint8),
        np.frombuffer(MAGIC, np.uint8),
        np.zeros(100, np.uint8),
        forged(before=BLOCK, after=2**60, numbers=[], data=b""),
        forged(before=BLOCK, after=2**39, numbers=[], data=b""),
        forged(before=BLOCK, after=BLOCK, numbers=[1], data=b"x" * BLOCK),
        forged(before=BLOCK, after=2 * BLOCK, numbers=[1, 1], data=b"x" * 2 * BLOCK),
        forged(before=BLOCK, after=2 * BLOCK, numbers=[1, 0], data=b"x" * 2 * BLOCK),
        forged(before=BLOCK, after=BLOCK, numbers=[0], data=b"x"),
        forged(before=BLOCK, after=BLOCK, numbers=[0], data=b"x" * 2 * BLOCK),
        forged(before=BLOCK, after=BLOCK, numbers=[0], data=b"x" * BLOCK, crc=zlib.crc32(b"y" * BLOCK)),
    ):
        with pytest.raises(CommError):
            apply_delta(some_bytes(BLOCK), changes)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 255))
def test_a_changed_byte_of_a_delta_never_goes_unnoticed(at: int, value: int) -> None:
    old = some_bytes(4 * BLOCK)
    new = old.copy()
    new[[0, 2 * BLOCK]] ^= 1
    changes = delta(old, new)
    assert changes is not None
    changes[at % changes.size] = value

    try:
        result = apply_delta(old, changes)
    except CommError:
        return
    np.testing.assert_array_equal(result, new)
