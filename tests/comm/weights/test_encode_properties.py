"""Whatever a state is, it comes back; whatever else a head or a file says, it is refused."""

from __future__ import annotations

import hashlib
import json
import string
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from ding_like.comm.channels import Version, Weights
from ding_like.comm.flat_state import flatten_state, unflatten_state
from ding_like.comm.weights.encode import DTYPES, Encoded, Layout, decode, encode
from ding_like.comm.weights.files import read_weights, write_weights
from ding_like.errors import CommError

KEYS = st.text(st.sampled_from(string.ascii_letters + './~ äπ火\U0001f680"\\\n\x00'), min_size=1, max_size=8)
SHAPES = st.lists(st.integers(0, 4), max_size=3)


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """Draw a tensor of any dtype and shape: 0-d, empty, a view, turned, or every second of another's."""
    dtype, shape = draw(st.sampled_from(list(DTYPES.values()))), draw(SHAPES)
    count = int(np.prod(shape))
    seed = draw(st.integers(0, 2**16))
    # Random bytes: every bit pattern, NaNs with payloads and negative zeros among them.
    pattern = np.random.default_rng(seed).integers(0, 256, 2 * count * dtype.itemsize, dtype=np.uint8)
    pattern = pattern & 1 if dtype is torch.bool else pattern
    both = torch.from_numpy(pattern).view(dtype) if count else torch.empty(0, dtype=dtype)
    kind = draw(st.sampled_from(["view", "strided", "turned"]))
    if kind == "strided":
        return both[::2].view(shape) if not shape else both.view(count, 2)[:, 0].reshape(shape)
    tensor = both[:count].view(shape)
    return tensor.permute(tuple(reversed(range(tensor.ndim)))) if kind == "turned" else tensor


def bits(tensor: torch.Tensor) -> bytes:
    return (
        torch.empty(tensor.numel(), dtype=tensor.dtype).copy_(tensor.reshape(-1)).view(torch.uint8).numpy().tobytes()
        if tensor.numel()
        else b""
    )


def travelled(encoded: Encoded) -> Weights:
    return decode(Encoded(json.loads(json.dumps(encoded.head)), encoded.body.copy()))


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(KEYS, st.dictionaries(KEYS, tensors(), max_size=3) | tensors(), max_size=5), st.booleans())
def test_every_state_comes_back_bit_for_bit(state: dict[str, Any], is_rounded: bool) -> None:
    flat = flatten_state(state)

    found = travelled(encode(Weights("p", Version(1, 2), flat), dtype="bfloat16" if is_rounded else "exact"))

    assert found.state.keys() == flat.keys()
    for name, tensor in flat.items():
        own = found.state[name]
        assert own.dtype == tensor.dtype and own.shape == tensor.shape
        is_number = "~" in name.rpartition("/")[2].replace("~0", "").replace("~1", "")
        if is_rounded and tensor.dtype is torch.float32 and not is_number:
            torch.testing.assert_close(own, tensor.bfloat16().float(), rtol=0, atol=0, equal_nan=True)
        else:
            assert bits(own) == bits(tensor), name
    assert unflatten_state(found.state).keys() == state.keys()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(KEYS, tensors(), max_size=5), st.sampled_from(["exact", "bfloat16"]))
def test_every_file_is_one_that_safetensors_opens(tmp_path: Path, state: dict[str, torch.Tensor], dtype: Any) -> None:
    encoded = encode(Weights("p", Version(1, 2), flatten_state(state)), dtype=dtype)

    written = write_weights(tmp_path, encoded)

    found = read_weights(tmp_path, "p", 1, 2, sha256=written.sha256)
    expected = decode(encoded).state
    assert {name: bits(each) for name, each in found.items()} == {name: bits(each) for name, each in expected.items()}
    with safe_open(tmp_path / "p" / "1-2.safetensors", framework="pt") as file:
        layout = Layout.of(flatten_state(state), dtype=dtype)
        assert set(file.keys()) == {name for name, _, _ in layout.vectors}
        assert json.loads(file.metadata()["ding_like.weights"]) == encoded.head
        for name, start, end in layout.vectors:
            vector = file.get_tensor(name)
            assert vector.dtype == DTYPES[name]
            assert vector.view(torch.uint8).numpy().tobytes()[: end - start] == encoded.body[start:end].tobytes()


def test_views_of_one_storage_arrive_as_tensors_of_their_own() -> None:
    base = torch.arange(12.0)

    found = travelled(encode(Weights("p", Version(0, 0), {"a": base[:8], "b": base[4:], "c": base.view(3, 4).T})))
    found.state["a"].zero_()

    assert torch.equal(found.state["b"], base[4:]) and torch.equal(found.state["c"], base.view(3, 4).T)


def a_state() -> dict[str, torch.Tensor]:
    return {"w": torch.arange(6.0).view(2, 3), "b": torch.zeros(3), "n~int": torch.tensor(4), "m": torch.tensor([True])}


BAD_LAYOUTS: list[Any] = [
    None,
    [],
    "float32",
    {"float32": {}},
    {"complex64": [["w", [1]]]},
    {"object": []},
    {"float32": [["w"]]},
    {"float32": [["w", [1], "float32", 0]]},
    {"float32": [["w", [1], "int64"]]},
    {"float32": [["w", [1], "float64"]]},
    {"bfloat16": [["w", [1], "float64"]]},
    {"int64": [["w", [1], "float32"]]},
    {"float32": [["w", [1], None]]},
    {"float32": [[1, [1]]]},
    {"float32": [["w" * 2000, [1]]]},
    {"float32": [["w", 3]]},
    {"float32": [["w", [-1]]]},
    {"float32": [["w", [1.0]]]},
    {"float32": [["w", [True]]]},
    {"float32": [["w", [float("nan")]]]},
    {"float32": [["w", ["3"]]]},
    {"float32": [["w", [2**70]]]},
    {"float32": [["w", [2**40, 2**40]]]},
    {"float32": [["w", [2**34 + 1]]]},
    {"float32": [["w", [2**52, 0, 2**52]], ["v", [2**34 + 1]]]},
    {"float32": [["w", [1] * 65]]},
    {"float32": [["w", [1]], ["w", [1]]]},
    {"float32": [["w", [1]]], "int64": [["w", [1]]]},
]


def is_refused(read: Callable[[], object]) -> bool:
    try:
        read()
    except CommError:
        return True
    return False


def test_a_layout_that_is_nonsense_is_refused() -> None:
    taken = [described for described in BAD_LAYOUTS if not is_refused(partial(Layout.parse, described))]

    assert taken == []


def test_a_head_that_is_nonsense_is_refused() -> None:
    encoded = encode(Weights("p", Version(1, 2), a_state()))
    changes: list[dict[str, Any]] = [
        {"policy_id": None},
        {"policy_id": ""},
        {"policy_id": "p" * 2000},
        {"version": None},
        {"version": [1]},
        {"version": [1, -1]},
        {"version": [1, 2.5]},
        {"version": [1, True]},
        {"version": [1, 2**60]},
        {"layout": None},
    ]
    taken = [
        each for each in changes if not is_refused(partial(decode, encoded._replace(head={**encoded.head, **each})))
    ]

    assert taken == []
    for head in (None, [], "head", 3):
        with pytest.raises(CommError, match="no JSON object"):
            decode(Encoded(head, np.zeros(0, np.uint8)))  # type: ignore[arg-type]


def test_bytes_of_another_length_are_refused() -> None:
    encoded = encode(Weights("p", Version(1, 2), a_state()))

    for body in (encoded.body[:-1], np.append(encoded.body, encoded.body[:1]), encoded.body[:0]):
        with pytest.raises(CommError, match="in place of the"):
            decode(encoded._replace(body=body))


def test_a_bool_of_neither_value_is_refused() -> None:
    encoded = encode(Weights("p", Version(1, 2), {"m": torch.tensor([True, False])}))
    encoded.body[1] = 7

    with pytest.raises(CommError, match="neither true nor false"):
        decode(encoded)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(sorted(DTYPES)),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3) | st.sampled_from(sorted(DTYPES)), inner)
    ),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(JSON)
def test_any_json_is_a_layout_or_refused(described: Any) -> None:
    try:
        layout = Layout.parse(described)
    except CommError:
        return
    assert Layout.parse(layout.describe()) == layout


def replaced(data: bytes, text: bytes) -> bytes:
    """Put other JSON into the head of a file, with a length that fits."""
    length = int.from_bytes(data[:8], "little")
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


def with_vector(data: bytes, **change: Any) -> bytes:
    length = int.from_bytes(data[:8], "little")
    head = json.loads(data[8 : 8 + length])
    head["float32"] = {**head["float32"], **change}
    return replaced(data, json.dumps(head, separators=(",", ":")).encode())


FILE_CHANGES: list[Callable[[bytes], bytes]] = [
    lambda data: b"",
    lambda data: data[:7],
    lambda data: data[:100],
    lambda data: data[:-1],
    lambda data: data + b"\0",
    lambda data: (2**63).to_bytes(8, "little") + data[8:],
    lambda data: b"\xff" * 8 + data[8:],
    lambda data: (0).to_bytes(8, "little") + data[8:],
    lambda data: replaced(data, b"{}"),
    lambda data: replaced(data, b"[]"),
    lambda data: replaced(data, b"\xff\xfe"),
    lambda data: replaced(data, b"NaN"),
    lambda data: replaced(data, b"[" * 100_000),
    lambda data: replaced(data, b'{"__metadata__":{"ding_like.weights":"{\\"version\\":NaN}"}}'),
    lambda data: replaced(data, b'{"__metadata__":{"ding_like.weights":3}}'),
    lambda data: with_vector(data, data_offsets=[0, 36]),
    lambda data: with_vector(data, data_offsets=[-64, 36]),
    lambda data: with_vector(data, data_offsets=[64, 2**60]),
    lambda data: with_vector(data, shape=[10**12]),
    lambda data: with_vector(data, dtype="I32"),
    lambda data: with_vector(data, dtype="F64"),
]


def test_a_file_that_is_not_as_it_would_be_written_is_refused(tmp_path: Path) -> None:
    write_weights(tmp_path, encode(Weights("p", Version(1, 2), a_state())))
    path = tmp_path / "p" / "1-2.safetensors"
    good, taken = path.read_bytes(), []
    for number, change in enumerate(FILE_CHANGES):
        data = change(good)
        path.write_bytes(data)
        sha256 = hashlib.sha256(data).hexdigest()
        if not is_refused(partial(read_weights, tmp_path, "p", 1, 2, sha256=sha256)):
            taken.append((number, data[:200]))

    assert taken == []


def test_a_file_of_another_version_is_refused(tmp_path: Path) -> None:
    written = write_weights(tmp_path, encode(Weights("p", Version(1, 2), a_state())))
    (tmp_path / "p" / "1-2.safetensors").rename(tmp_path / "p" / "1-3.safetensors")

    with pytest.raises(CommError, match="they are version 1-2"):
        read_weights(tmp_path, "p", 1, 3, sha256=written.sha256)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**16), st.integers(0, 255))
def test_a_changed_byte_of_the_head_is_refused_or_makes_another_file_of_weights(
    tmp_path: Path, at: int, value: int
) -> None:
    write_weights(tmp_path, encode(Weights("p", Version(1, 2), a_state())))
    path = tmp_path / "p" / "1-2.safetensors"
    data = bytearray(path.read_bytes())
    length = 8 + int.from_bytes(data[:8], "little")
    data[at % length] = value
    path.write_bytes(data)

    try:
        found = read_weights(tmp_path, "p", 1, 2, sha256=hashlib.sha256(data).hexdigest())
    except CommError:
        return
    write_weights(tmp_path, encode(Weights("p", Version(1, 2), found)))
    assert path.read_bytes()[:length] == data[:length]  # what lies between two vectors is nobody's
