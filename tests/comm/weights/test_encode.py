"""What is encoded is decoded as it was, whatever its names, dtypes and strides."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.comm.channels import Version, Weights
from ding_like.comm.flat_state import flatten_state
from ding_like.comm.weights.encode import Encoded, Layout, decode, encode
from ding_like.errors import CommError


def state() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    base = torch.randn(4, 6, generator=generator)
    return {
        "model/weight": base[:, ::2],
        "model/view": base[1],
        "model/empty": torch.zeros(0, 3),
        "model/mask": torch.tensor([True, False, True]),
        "model/half": torch.randn(3, generator=generator).bfloat16(),
        "count~int": torch.tensor(2**53 + 1),
        "mean": torch.randn(2, generator=generator, dtype=torch.float64),
        "scale~array": torch.randn(5, generator=generator),
    }


def travelled(weights: Weights, encoded: Encoded) -> Weights:
    return decode(Encoded(json.loads(json.dumps(encoded.head)), encoded.body.copy()))


def test_exact_weights_arrive_bit_equal() -> None:
    weights = Weights("policy", Version(2, 7), state())

    found = travelled(weights, encode(weights))

    assert found[:2] == weights[:2] and found.state.keys() == weights.state.keys()
    for name, tensor in weights.state.items():
        assert found.state[name].dtype == tensor.dtype and torch.equal(found.state[name], tensor), name


def test_bfloat16_rounds_float32_tensors_and_nothing_else() -> None:
    weights = Weights("policy", Version(0, 0), state())

    found = travelled(weights, encode(weights, dtype="bfloat16"))

    for name, tensor in weights.state.items():
        rounded = name in ("model/weight", "model/view")
        expected = tensor.bfloat16().float() if rounded else tensor
        assert found.state[name].dtype == tensor.dtype and torch.equal(found.state[name], expected), name


def test_a_parameter_whose_name_has_a_slash_or_a_tilde_is_rounded_as_others_are() -> None:
    state = flatten_state({"model": {"arm/left~": torch.full((3,), 0.1)}})

    found = travelled(Weights("p", Version(0, 0), state), encode(Weights("p", Version(0, 0), state), dtype="bfloat16"))

    assert torch.equal(found.state["model/arm~1left~0"], torch.full((3,), 0.1).bfloat16().float())


def test_layouts_of_equal_states_are_equal_and_survive_json() -> None:
    layout, other = Layout.of(state()), Layout.of(dict(reversed(state().items())))

    assert layout == other == Layout.parse(json.loads(json.dumps(layout.describe())))
    assert layout != Layout.of(state(), dtype="bfloat16")


def test_every_vector_begins_at_64_bytes() -> None:
    layout = Layout.of(state())

    assert all(start % 64 == 0 for _, start, _ in layout.vectors)
    assert layout.vectors[-1][2] == layout.nbytes


def test_exact_tensors_are_views_of_the_body() -> None:
    encoded = encode(Weights("policy", Version(0, 0), {"w": torch.zeros(3)}))
    found = decode(encoded)

    encoded.body[:4] = np.frombuffer(np.float32(5.0).tobytes(), np.uint8)

    assert found.state["w"].tolist() == [5.0, 0.0, 0.0]


def test_check_names_the_first_tensor_that_differs() -> None:
    layout = Layout.of({"a": torch.zeros(2), "b": torch.zeros(3)})

    layout.check({"b": torch.ones(3), "a": torch.ones(2)})
    for wrong, said in (
        ({"a": torch.zeros(2)}, "lack 'b'"),
        ({"a": torch.zeros(2), "b": torch.zeros(3), "c": torch.zeros(1)}, "'c'"),
        ({"a": torch.zeros(2), "b": torch.zeros(4)}, r"'b' as float32 \[4\]; expected float32 \[3\]"),
        ({"a": torch.zeros(2).double(), "b": torch.zeros(4)}, "'a' as float64"),
    ):
        with pytest.raises(CommError, match=said):
            layout.check(wrong)


def test_what_no_reader_takes_is_refused_by_name_where_it_is_published() -> None:
    for name, tensor, said in (
        ("w", torch.eye(2).to_sparse(), "'w' has the layout torch.sparse_coo"),
        ("w", torch.empty(2, device="meta"), r"'w' has no memory"),
        ("w", np.zeros(2), "ndarray at 'w'; expected a tensor"),
        ("w", None, "NoneType at 'w'"),
        ("w", torch.zeros(2, dtype=torch.complex64), r"'w' is torch\.complex64"),
        ("w" * 5000, torch.zeros(1), "up to 1,024 characters"),
    ):
        with pytest.raises(CommError, match=said):
            Layout.of({name: tensor})  # type: ignore[dict-item]
    Layout.parse(Layout.of({"w" * 1024: torch.zeros(1)}).describe())


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["exact", "bfloat16"])
def test_weights_of_a_gpu_are_those_of_the_host(dtype: Any) -> None:
    weights = Weights("policy", Version(0, 0), state())
    on_gpu = {name: tensor.cuda() for name, tensor in weights.state.items()}
    on_both = {**on_gpu, "count~int": weights.state["count~int"]}

    expected = encode(weights, dtype=dtype)

    for each in (on_gpu, on_both):
        found = encode(weights._replace(state=each), dtype=dtype)
        assert found.head == expected.head and np.array_equal(found.body, expected.body)
