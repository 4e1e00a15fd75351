"""Turn numbers, arrays and tensors into one another, within dicts, lists and tuples.

DI-engine's scripts and envs call these; ours hold columns and need none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

# Trees of many types, hence Any throughout.


def to_ndarray(item: Any, dtype: Any = None) -> Any:
    """Return `item` with every number, list of numbers and tensor in it as an array of `dtype` (None: its own).

    Dicts, tuples and lists of such stay what they are; None and text are left alone.
    """
    return _convert(item, lambda leaf: np.array(_plain(leaf), dtype=dtype), joins_numbers=True)


def to_tensor(item: Any, dtype: Any = None, ignore_keys: tuple[str, ...] = (), transform_scalar: bool = True) -> Any:
    """Return `item` with every number, list of numbers and array in it as a tensor of `dtype` (None: its own).

    Numbers stay as they are without `transform_scalar`, and so does what a dict has under `ignore_keys`.
    """
    import torch

    def convert(leaf: Any) -> Any:
        if not transform_scalar and isinstance(leaf, (bool, int, float)):
            return leaf
        return torch.as_tensor(np.array(leaf) if isinstance(leaf, list) else leaf).to(dtype)

    return _convert(item, convert, joins_numbers=True, ignore_keys=ignore_keys)


def to_list(item: Any) -> Any:
    """Return `item` with every array and tensor in it as a list, or as a number where it has no axis."""
    return _convert(item, lambda leaf: leaf.tolist() if hasattr(leaf, "tolist") else leaf)


def to_device(item: Any, device: str, ignore_keys: tuple[str, ...] = ()) -> Any:
    """Return `item` with every tensor and module in it on `device`."""
    return _convert(item, lambda leaf: leaf.to(device) if hasattr(leaf, "to") else leaf, ignore_keys=ignore_keys)


def to_dtype(item: Any, dtype: Any) -> Any:
    """Return `item` with every tensor in it of `dtype`."""
    return _convert(item, lambda leaf: leaf.to(dtype) if hasattr(leaf, "to") else leaf)


def _convert(
    item: Any, leaf: Callable[[Any], Any], *, joins_numbers: bool = False, ignore_keys: tuple[str, ...] = ()
) -> Any:
    """Return `item` with its leaves converted; a list of numbers is one leaf with `joins_numbers`."""
    if item is None or isinstance(item, str):
        return item
    if isinstance(item, Mapping):
        make: Any = type(item)
        return make(
            {
                key: value
                if key in ignore_keys
                else _convert(value, leaf, joins_numbers=joins_numbers, ignore_keys=ignore_keys)
                for key, value in item.items()
            }
        )
    if isinstance(item, (list, tuple)):
        if joins_numbers and item and all(isinstance(each, (bool, int, float, np.generic)) for each in item):
            return leaf(list(item))
        items = [_convert(each, leaf, joins_numbers=joins_numbers, ignore_keys=ignore_keys) for each in item]
        return type(item)(*items) if hasattr(item, "_fields") else type(item)(items)
    return leaf(item)


def _plain(leaf: Any) -> Any:
    """Return a tensor as an array on the CPU, anything else as it is."""
    return leaf.detach().cpu().numpy() if hasattr(leaf, "detach") else leaf
