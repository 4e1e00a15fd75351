"""What is encoded is decoded as it was, whatever its names, dtypes and strides; other bytes are refused."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from ding_like.comm.channels import Version, Weights
from ding_like.comm.tensors import (
    BLOCK,
    MAGIC,
    apply_delta,
    decode_weights,
    delta,
    encode_weights,
    flatten_state,
    from_bytes,
    is_delta,
    load_into,
    named_like,
    state_of,
    to_bytes,
)
from ding_like.errors import CommError
from ding_like.types import Array


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


@pytest.fixture(scope="module")
def gpu() -> None:
    torch.cuda.init()  # the driver's own socket stays open: before the test, which must leave none


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("dtype", ["exact", "bfloat16"])
def test_weights_of_a_gpu_are_those_of_the_host(dtype: Any) -> None:
    on_gpu = {name: tensor.cuda() for name, tensor in state().items()}
    on_both = {**on_gpu, "count~int": state()["count~int"]}

    for each in (on_gpu, on_both):
        found = encode_weights(weights()._replace(state=each), dtype=dtype)
        assert np.array_equal(found, encode_weights(weights(), dtype=dtype))


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


class TensorDictLike:
    """Object with the methods that the documentation of TensorDictBase names; nested entries are of the same class."""

    def __init__(self, entries: dict[str, Any]) -> None:
        self.entries = {key: TensorDictLike(each) if isinstance(each, dict) else each for key, each in entries.items()}

    def items(self, include_nested: bool = False, leaves_only: bool = False) -> Iterator[tuple[Any, Any]]:
        for key, value in self.entries.items():
            is_nested = isinstance(value, TensorDictLike)
            if not (is_nested and leaves_only):
                yield key, value
            if is_nested and include_nested:
                for inner, leaf in value.items(True, leaves_only):
                    yield (key, *((inner,) if isinstance(inner, str) else inner)), leaf

    def flatten_keys(self, separator: str = ".") -> Any: ...

    def unflatten_keys(self, separator: str = ".") -> Any: ...


def module(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))


def tensordict_of(model: nn.Module) -> TensorDictLike:
    """Nest the names of a module, as TensorDict.from_module does."""
    entries: dict[str, Any] = {}
    for name, tensor in model.state_dict().items():
        *parents, last = name.split(".")
        place = entries
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = tensor
    return TensorDictLike(entries)


class Mode:
    """Source like a policy's collect mode."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {"model": module().state_dict(), "returns": {"count": 3}}

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state


def assert_equal(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_a_module_its_state_dict_and_its_tensordict_have_the_same_weights() -> None:
    model = module()

    assert_equal(state_of(model.state_dict()), state_of(model))
    assert_equal(state_of(tensordict_of(model)), state_of(model))


def test_a_collect_mode_gives_its_whole_state() -> None:
    assert {"model/0.weight", "returns/count~int"} <= state_of(Mode()).keys()


def test_tensors_are_the_source_own_and_need_no_gradient() -> None:
    model = nn.Linear(2, 3)

    weight = state_of(model)["weight"]

    assert weight.data_ptr() == model.weight.data_ptr() and not weight.requires_grad


@pytest.mark.parametrize("kind", ["module", "dict", "tensordict"])
def test_weights_go_into_a_target_in_place(kind: str) -> None:
    model, other = module(0), module(1)
    target = {"module": model, "dict": model.state_dict(), "tensordict": tensordict_of(model)}[kind]
    before = model[0].weight.data_ptr()  # type: ignore[index, union-attr, operator]

    load_into(target, state_of(other))

    assert_equal(state_of(model), state_of(other))
    assert model[0].weight.data_ptr() == before  # type: ignore[index, union-attr, operator]


def test_arrays_are_filled_and_numbers_replaced() -> None:
    array = np.zeros(2)
    target = {"mean": array, "count": 1, "inner": {"is_on": False}}

    load_into(target, state_of({"mean": np.ones(2), "count": 5, "inner": {"is_on": True}}))

    assert array.tolist() == [1.0, 1.0]
    assert target == {"mean": array, "count": 5, "inner": {"is_on": True}}


def test_a_collect_mode_loads_what_it_gave() -> None:
    target, source = Mode(), Mode()
    source.state["returns"]["count"] = 9

    load_into(target, state_of(source))

    assert target.state["returns"] == {"count": 9}


def test_what_does_not_fit_changes_nothing_and_is_named() -> None:
    model = module()
    before = {name: tensor.clone() for name, tensor in state_of(model).items()}
    ones = {name: torch.ones_like(tensor) for name, tensor in before.items()}
    for wrong, said in (
        ({name: each for name, each in ones.items() if name != "1.bias"}, "lack '1.bias'"),
        ({**ones, "more": torch.zeros(1)}, "'more', which is not expected"),
        ({**ones, "1.bias": torch.zeros(4)}, r"'1.bias' as float32 \[4\]"),
        ({**ones, "1.bias": torch.zeros(3).double()}, "'1.bias' as float64"),
    ):
        with pytest.raises(CommError, match=said):
            load_into(model, wrong)

        assert_equal(state_of(model), before)


def test_what_holds_no_weights_is_refused() -> None:
    for source in (3, "weights", [torch.zeros(1)], {"a": object()}):
        with pytest.raises(CommError):
            state_of(source)


def test_keys_of_a_tensordict_that_join_to_one_name_are_refused() -> None:
    with pytest.raises(CommError, match=r"a\.b"):
        state_of(TensorDictLike({"a": {"b": torch.zeros(1)}, "a.b": torch.zeros(1)}))


def numbered(*names: str) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(float(place)) for place, name in enumerate(names)}


def test_a_state_gets_the_names_that_differ_by_their_separators() -> None:
    for names, own in ((["a.b", "c"], ["c", "a/b"]), (["a/b.w", "c"], ["c", "a.b/w"]), (["a", "b"], ["b", "a"])):
        given = numbered(*own)

        found = named_like(names, given)

        assert found.keys() == set(names)
        assert {name.replace("/", "."): each.item() for name, each in found.items()} == {
            name.replace("/", "."): each.item() for name, each in given.items()
        }


def test_other_names_stay_as_they_are() -> None:
    for names, own in (
        (["a.b"], ["a.c"]),
        (["a.b"], ["a/b", "c"]),
        (["a.b", "a/b"], ["a/b", "c"]),
        (["a.b"], ["a.b", "a/b"]),
        (["a/b", "a.b"], ["a/b"]),
    ):
        assert named_like(names, numbered(*own)) == numbered(*own)
