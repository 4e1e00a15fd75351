from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from ding_like.utils.data import to_device, to_dtype, to_list, to_ndarray, to_tensor


class Pair(NamedTuple):
    left: object
    right: object


def test_arrays_are_made_of_numbers_lists_and_tensors_within_trees() -> None:
    made = to_ndarray({"a": [1, 2], "b": (torch.ones(2), 3.0), "c": None, "d": "text"})

    assert made["a"].tolist() == [1, 2] and made["a"].dtype.kind == "i"
    assert made["b"][0].tolist() == [1, 1] and made["b"][1].shape == () and made["c"] is None and made["d"] == "text"


def test_an_array_has_the_dtype_that_is_asked_for() -> None:
    assert to_ndarray([1, 2], dtype=np.float32).dtype == np.float32


def test_tensors_are_made_within_named_tuples_and_scalars_may_stay() -> None:
    made = to_tensor(Pair(np.zeros(2), {"done": True}), dtype=torch.float32, transform_scalar=False)

    assert isinstance(made, Pair) and torch.equal(made.left, torch.zeros(2)) and made.right == {"done": True}


def test_keys_may_be_left_alone() -> None:
    made = to_tensor({"obs": [1.0], "id": [1.0]}, ignore_keys=("id",))

    assert torch.equal(made["obs"], torch.ones(1)) and made["id"] == [1.0]


def test_lists_come_of_arrays_and_tensors() -> None:
    assert to_list({"a": np.arange(2), "b": [torch.tensor(3)]}) == {"a": [0, 1], "b": [3]}


def test_tensors_move_to_a_device_and_a_dtype() -> None:
    moved = to_dtype(to_device([torch.ones(1), "text"], "cpu"), torch.float64)

    assert moved[0].dtype == torch.float64 and moved[1] == "text"
