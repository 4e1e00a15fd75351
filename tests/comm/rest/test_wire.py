"""Messages survive the wire, and nothing that is no message gets through."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.messages import (
    STATUS,
    Id,
    RefusedError,
    Signer,
    answer_signature,
    check_id,
    decode,
    draw_secret,
    encode,
    is_secret,
    own_key,
    steady_clock,
)


@dataclass(frozen=True)
class Inner:
    number: int
    share: float = 0.5


@dataclass(frozen=True)
class Outer:
    name: Id
    flag: bool
    inner: Inner
    many: tuple[Inner, ...] = ()
    table: dict[str, int] = field(default_factory=dict)
    free: dict[str, Any] = field(default_factory=dict)
    maybe: Inner | None = None


def body(**changes: Any) -> bytes:
    return json.dumps({"name": "a", "flag": True, "inner": {"number": 1}, **changes}).encode()


def test_a_message_comes_back_equal() -> None:
    sent = Outer("a", True, Inner(3, 0.25), (Inner(1), Inner(2)), {"x": 1}, {"deep": [1, "two", None, {"y": 0.5}]})

    assert decode(Outer, encode(sent)) == sent


def test_arrays_come_back_bit_by_bit() -> None:
    places, weights = np.array([-1, 0, 2**40], np.int64), np.array([-0.0, 1e-45, 3e38], np.float32)

    found = decode(m.Batches, encode(m.Batches(1, places, np.arange(3), weights)))

    for sent, back in ((places, found.places), (weights, found.weights)):
        assert back.dtype == sent.dtype and back.tobytes() == sent.tobytes() and back.flags.writeable


def test_defaults_fill_what_is_left_out() -> None:
    assert decode(Outer, body()) == Outer("a", True, Inner(1))


def test_what_is_no_message_is_refused() -> None:
    cases = [
        (b"", "no JSON"),
        (b"[]", "expected dict"),
        (b"\xff\xfe", "no JSON"),
        (b"\xef\xbb\xbf{}", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b'{"name":' + b"9" * 1_000_000 + b"}", "no JSON"),
        (b'{"name":"a","name":"b"}', "a key comes twice"),
        (body(extra=1), "unknown extra"),
        (b'{"name":"a"}', "missing flag, inner"),
        (body(flag=1), "expected bool"),
        (body(inner={"number": True}), "expected int"),
        (body(inner={"number": 1.5}), "expected int"),
        (body(inner={"number": 10**30}), "too large"),
        (body(inner={"number": 1, "share": "x"}), "expected float"),
        (body(inner={"number": 1, "share": float("nan")}), "NaN is no JSON"),
        (body(inner={"number": 1, "share": 1}).replace(b'"share": 1', b'"share": 1e999'), "not finite"),
        (body(inner=[1]), "expected dict"),
        (body(many={"number": 1}), "expected list"),
        (body(many=[{"number": 1}] * 5000), "5000 items"),
        (body(free={"x": "y" * 100_000}), "100000 characters"),
        (body(free={"x": "\ud800"}), "not a valid text"),
        (body(free=json.loads('{"x":' * 40 + "1" + "}" * 40)), "nested deeper"),
        (body(name="../../etc/passwd"), "expected letters, digits"),
    ]
    for sent, said in cases:
        with pytest.raises(RefusedError, match=said) as caught:
            decode(Outer, sent)
        assert caught.value.status in (400, 413) and len(caught.value.message) < 400, said


def test_names_that_could_be_more_than_names_are_refused() -> None:
    for name in ["", ".", "..", "/abs", "a/b", "a\\b", "%2e", "~", "a b", "é", "a\n", "-rf", "x" * 129, "a\0"]:
        with pytest.raises(RefusedError, match="name is"):
            check_id(name, "name")


def test_arrays_that_are_none_are_refused() -> None:
    for text in ["?", "AAA", "AAAA", "é", "AAAAAAAAAAA=AAAA"]:
        sent = json.dumps({"num_batches": 1, "places": text, "unique_ids": "", "weights": None}).encode()
        with pytest.raises(RefusedError, match="places is not an array"):
            decode(m.Batches, sent)


def test_arrays_with_numbers_that_are_not_finite_are_refused() -> None:
    sent = encode(m.Batches(1, np.arange(1), np.arange(1), np.array([np.inf], np.float32)))

    with pytest.raises(RefusedError, match="not finite"):
        decode(m.Batches, sent)


def test_numbers_that_are_not_finite_are_not_sent() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        encode(Inner(1, float("nan")))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(sent: bytes) -> None:
    try:
        decode(m.Heartbeat, sent)
    except RefusedError as error:
        assert error.status == STATUS[error.code]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.fixed_dictionaries({"state": json_values}, optional={"task_id": json_values, "stats": json_values}))
def test_any_json_is_a_message_or_refused(sent: dict[str, Any]) -> None:
    try:
        found = decode(m.Heartbeat, json.dumps(sent).encode())
    except RefusedError:
        return
    assert decode(m.Heartbeat, encode(found)) == found


KEY, SECRET, WORKER = b"c" * 32, "5" * 64, "collector-1"


def test_secrets_are_long_and_different() -> None:
    assert is_secret(draw_secret()) and draw_secret() != draw_secret()
    assert not any(is_secret(text) for text in ("", "0" * 31, "0" * 129, "G" * 64, "0" * 63 + "\n"))


def test_an_answer_is_signed_for_one_worker_request_status_and_body() -> None:
    own = own_key(KEY, WORKER, SECRET)
    signature = answer_signature(own, WORKER, "asked", 200, b"{}")
    signer = Signer("collector", KEY, secret=SECRET)

    assert signer.is_answer(signature, "asked", 200, b"{}", worker=WORKER)
    for asked, status, body, worker in (
        ("other", 200, b"{}", WORKER),
        ("asked", 404, b"{}", WORKER),
        ("asked", 200, b"{ }", WORKER),
        ("asked", 200, b"{}", "collector-2"),
        ("asked", 200, b"{}", ""),
    ):
        assert not signer.is_answer(signature, asked, status, body, worker=worker)
    by_role = answer_signature(KEY, WORKER, "asked", 404, b"{}")
    assert not signer.is_answer(by_role, "asked", 404, b"{}", worker=WORKER)
    assert signer.is_answer(by_role, "asked", 404, b"{}", worker=WORKER, by_role=True)


def test_a_steady_clock_is_moved_by_no_change_of_the_walls() -> None:
    wall, monotonic = [5000.0], [10.0]
    clock = steady_clock(lambda: wall[0], lambda: monotonic[0])

    wall[0] += 600.0
    monotonic[0] += 1.5
    assert clock() == 5001.5
    wall[0] -= 3600.0
    assert clock() == 5001.5
