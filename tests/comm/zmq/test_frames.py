"""A message comes back as it was sent, and whatever else comes is one clear error before anything is made of it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ding_like.comm.zmq.sockets import DTYPES, MAX_HEAD_NBYTES, decode, encode
from ding_like.errors import CommError

MAX = 1_000_000


def raw(head: object, *frames: bytes) -> list[bytes]:
    return [json.dumps(head).encode(), *frames]


@given(
    st.dictionaries(
        st.text(max_size=8),
        hnp.arrays(st.sampled_from(sorted(DTYPES)), hnp.array_shapes(min_dims=0, min_side=0, max_side=4)),
        max_size=4,
    )
)
def test_arrays_of_every_dtype_and_shape_come_back_bit_by_bit(arrays: dict[str, np.ndarray]) -> None:
    message = decode([bytes(frame) for frame in encode({"kind": "rows", "seq": 3}, arrays)], max_nbytes=MAX)

    assert message.kind == "rows" and message.head == {"kind": "rows", "seq": 3}
    assert list(message.arrays) == list(arrays)
    for name, array in arrays.items():
        found = message.arrays[name]
        assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())
        assert found.flags.aligned and not found.flags.writeable


def test_columns_that_lie_scattered_in_memory_are_sent_in_order() -> None:
    column = np.arange(12.0).reshape(3, 4)[:, ::2]

    assert np.array_equal(decode(encode({"kind": "rows"}, {"x": column}), max_nbytes=MAX).arrays["x"], column)


def test_an_array_that_stands_askew_in_what_was_received_is_aligned() -> None:
    head, body = encode({"kind": "rows"}, {"x": np.arange(4.0)})
    askew = memoryview(b"\0" + bytes(body))[1:]

    found = decode([head, askew], max_nbytes=MAX).arrays["x"]

    assert found.flags.aligned and found.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_what_could_not_be_read_is_not_sent() -> None:
    for array in (
        np.array([object()]),
        np.array(["text"]),
        np.array(["2026-01-01"], "datetime64[D]"),
        np.zeros(2, np.complex64),
        np.zeros(2, ">f4"),
        np.zeros(2, [("a", "f4")]),
    ):
        with pytest.raises(CommError, match="array 'x' has dtype"):
            encode({"kind": "rows"}, {"x": array})
    with pytest.raises(CommError, match="is no JSON"):
        encode({"kind": "x", "value": object()})


def test_what_is_no_message_is_one_clear_error() -> None:
    cases = [
        ([], "no head"),
        ([b""], "no head"),
        ([b"\xff\x00"], "no head"),
        ([b"[" * 100_000], "no head"),
        ([b'{"kind": ' + b"9" * 10_000 + b"}"], "no head"),
        (raw([1, 2]), "expected a JSON object"),
        (raw({"kind": 7, "arrays": []}), "expected a JSON object"),
        (raw({"kind": "x"}), "describes arrays as None"),
        (raw({"kind": "x", "arrays": {}}), "describes arrays as {}"),
        (raw({"kind": "x", "arrays": []}, b"extra"), "has 1 frames of them"),
        (raw({"kind": "x", "arrays": [["a", "uint8", [1]]]}), "has 0 frames of them"),
        (raw({"kind": "x", "arrays": ["a"]}, b"1"), "describes an array as 'a'"),
        (raw({"kind": "x", "arrays": [["a", "uint8"]]}, b"1"), "describes an array"),
        (raw({"kind": "x", "arrays": [["a", "O", [1]]]}, b"1" * 8), "numbers only"),
        (raw({"kind": "x", "arrays": [["a", "uint8", [-1]]]}, b"1"), "describes an array"),
        (raw({"kind": "x", "arrays": [["a", "uint8", [1.0]]]}, b"1"), "describes an array"),
        (raw({"kind": "x", "arrays": [["a", "uint8", "1"]]}, b"1"), "describes an array"),
        (raw({"kind": "x", "arrays": [["a", "uint8", [1] * 40]]}, b"1"), "too long"),
        (raw({"kind": "x", "arrays": [["a", "float32", [2]]]}, b"1234567"), "came with 7 bytes"),
        (raw({"kind": "x", "arrays": [["a", "float64", [2**40, 2**40]]]}, b""), "came with 0 bytes"),
        (raw({"kind": "x", "arrays": [["a", "float64", [2**50, 0]]]}, b""), "too long"),
    ]
    for frames, said in cases:
        with pytest.raises(CommError, match=said) as raised:
            decode(frames, max_nbytes=MAX)
        assert len(str(raised.value)) < 500


def test_a_message_of_more_bytes_or_frames_than_expected_is_refused() -> None:
    frames = encode({"kind": "x"}, {"a": np.zeros(100, np.uint8)})

    assert decode(frames, max_nbytes=100).arrays["a"].size == 100
    with pytest.raises(CommError, match="100 bytes; expected at most 99"):
        decode(frames, max_nbytes=99)
    with pytest.raises(CommError, match="no head of up to"):
        decode([b" " * (MAX_HEAD_NBYTES + 1)], max_nbytes=MAX)


@given(st.lists(st.binary(max_size=64), max_size=4), st.randoms(use_true_random=False))
def test_bytes_at_random_are_refused_or_read_and_nothing_else(frames: list[bytes], random: object) -> None:
    good = [bytearray(frame) for frame in encode({"kind": "x"}, {"a": np.arange(3, dtype=np.int16)})]
    for frame in frames:  # bytes of a good message changed at random, as well as random ones
        for byte in frame:
            good[byte % 2][byte % len(good[byte % 2])] ^= frame[0]
    for tried in (frames, [bytes(frame) for frame in good], [bytes(good[0]), *frames]):
        try:
            message = decode(tried, max_nbytes=MAX)
        except CommError:
            continue
        assert isinstance(message.kind, str)
