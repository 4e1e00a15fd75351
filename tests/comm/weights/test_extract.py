"""Weights come out of every source under the same names, and go back in place or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ding_like.comm.tensors import load_into, named_like, state_of
from ding_like.errors import CommError


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
