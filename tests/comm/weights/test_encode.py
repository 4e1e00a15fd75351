"""What is encoded is decoded as it was, whatever its names, dtypes and strides; other bytes are refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ding_like.comm.channels import Version, Weights
from ding_like.comm.tensors import decode_weights, encode_weights, flatten_state, from_bytes, to_bytes
from ding_like.errors import CommError


def state() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    base = torch.randn(4, 6, generator=generator)
    return {
        "model/mask": torch.tensor([True, False, True]),
        "model/weight": base[:, ::2],
        "model/view": base[1],
        "model/same": base[1],
        "model/empty": torch.zeros(0, 3),
        "model/half": torch.randn(3, generator=generator).bfloat16(),
        "model/unsigned": torch.tensor([2**16 - 1], dtype=torch.uint16),
        "count~int": torch.tensor(2**53 + 1),
        "mean": torch.randn(2, generator=generator, dtype=torch.float64),
        "scale~array": torch.randn(5, generator=generator),
    }


def weights(**more: torch.Tensor) -> Weights:
    return Weights("policy", Version(2, 7), {**state(), **more})


def assert_same(found: Any, expected: dict[str, torch.Tensor]) -> None:
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor), name


def test_exact_weights_arrive_bit_equal_and_as_views_of_the_bytes() -> None:
    data = encode_weights(weights())
    found = decode_weights(data)

    assert found[:2] == weights()[:2]
    assert_same(found.state, state())
    data[-1] ^= 1  # of "model/mask", whose numbers are the smallest
    assert not found.state["model/mask"][-1]


def test_safetensors_opens_the_bytes() -> None:
    expected = {name: each.contiguous() for name, each in state().items()}

    for found in (safetensors.torch.load(encode_weights(weights()).tobytes()), from_bytes(to_bytes(expected))[0]):
        assert_same({name: found[name] for name in expected}, expected)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.text(max_size=4), st.sampled_from(sorted(state())), max_size=6))
def test_every_name_and_order_comes_back(named: dict[str, str]) -> None:
    own = {name: state()[which] for name, which in named.items() if name != "__metadata__"}

    assert_same(from_bytes(to_bytes(own))[0], own)


def test_bfloat16_rounds_float32_tensors_and_nothing_else() -> None:
    more = flatten_state({"arm/left~": torch.full((3,), 0.1)})

    found = decode_weights(encode_weights(weights(**more), dtype="bfloat16"))

    for name, tensor in weights(**more).state.items():
        rounded = name in ("model/weight", "model/view", "model/same", "arm~1left~0")
        expected = tensor.bfloat16().float() if rounded else tensor
        assert found.state[name].dtype == tensor.dtype and torch.equal(found.state[name], expected), name


def test_what_no_reader_takes_is_refused_by_name_where_it_is_published() -> None:
    for tensor, said in (
        (torch.eye(2).to_sparse(), "'w' has the layout torch.sparse_coo"),
        (torch.empty(2, device="meta"), r"'w' has no memory"),
        (np.zeros(2), "ndarray at 'w'; expected a tensor"),
        (None, "NoneType at 'w'"),
        (torch.zeros(2, dtype=torch.complex64), r"'w' is torch\.complex64"),
    ):
        with pytest.raises(CommError, match=said):
            to_bytes({"w": tensor})  # type: ignore[dict-item]
    with pytest.raises(CommError, match="expected exact or bfloat16"):
        encode_weights(weights(), dtype="float16")  # type: ignore[arg-type]


# --- bytes that are not ours


def of_header(header: Any, body: bytes = bytes(8)) -> np.ndarray[Any, Any]:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return np.frombuffer(bytearray(len(text).to_bytes(8, "little") + text + body), np.uint8)


def entry(**change: Any) -> dict[str, Any]:
    return {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **change}}


def test_a_header_that_is_nonsense_is_refused() -> None:
    assert from_bytes(of_header(entry()))[0]["w"].tolist() == [0.0, 0.0]
    for wrong in (
        *(b"nonsense", b"[" * 100_000, [], 3, {"w": 3}, {"w": {}}),
        *(entry(dtype="F33"), entry(dtype=[]), entry(shape=[3]), entry(shape=3), entry(shape=[-2]), entry(shape=[2.0])),
        *(entry(data_offsets=[-8, 0]), entry(data_offsets=[8, 16]), entry(data_offsets=[0, 8, 8])),
        *(entry(shape=[1], data_offsets=[0, 4]), {**entry(), "v": entry()["w"]}, entry(shape=[2**80])),
    ):
        with pytest.raises(CommError, match="weights"):
            from_bytes(of_header(wrong))
    for data in (np.zeros(4, np.uint8), np.full(20, 255, np.uint8), np.zeros((2, 8)), of_header(entry())[:-1]):
        with pytest.raises(CommError, match="weights"):
            from_bytes(data)


def test_a_file_that_does_not_name_weights_is_refused() -> None:
    head = {"policy_id": "p", "version": [1, 2], "rounded": []}
    for change in ({"policy_id": 3}, {"policy_id": "p" * 2000}, {"version": [1]}, {"rounded": ["x"]}, {"rounded": 3}):
        with pytest.raises(CommError):
            decode_weights(to_bytes({}, {"ding_like.weights": json.dumps({**head, **change})}))
    for metadata in (None, {"ding_like.weights": "{}"}, {"ding_like.weights": "["}):
        with pytest.raises(CommError, match="does not name weights"):
            decode_weights(to_bytes({}, metadata))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**16), st.integers(0, 255))
def test_a_changed_byte_of_the_header_is_refused_or_makes_other_weights(at: int, value: int) -> None:
    data = encode_weights(weights())
    data[at % (data.size - 100)] = value
    try:
        decode_weights(data)
    except CommError:
        pass


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["exact", "bfloat16"])
def test_weights_of_a_gpu_are_those_of_the_host(dtype: Any) -> None:
    on_gpu = {name: tensor.cuda() for name, tensor in state().items()}
    on_both = {**on_gpu, "count~int": state()["count~int"]}

    for each in (on_gpu, on_both):
        found = encode_weights(weights()._replace(state=each), dtype=dtype)
        assert np.array_equal(found, encode_weights(weights(), dtype=dtype))
