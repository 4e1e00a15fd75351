"""What code in DI-engine's style calls on rows: stacked into batches, taken apart, made of arrays or tensors.

Ours has columns and needs none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ding_like.errors import SchemaError

# Trees of many types, hence Any.

_STATES = ("prev_state", "prev_actor_state", "prev_critic_state")


def default_collate(
    batch: Sequence[Any], cat_1dim: bool = True, ignore_prefix: Sequence[str] = ("collate_ignore",)
) -> Any:
    """Return B rows as one: tensors, arrays and numbers become tensors [B, ...], text stays a list.

    Dicts, tuples and lists are collated entry by entry; entries [1] become [B], not [B, 1], with `cat_1dim`. What dicts
    have under a key that begins with one of `ignore_prefix` becomes a list. Raises SchemaError for other types, for
    different shapes, keys or lengths, and without any row.
    """
    import torch

    if not len(batch):
        raise SchemaError("default_collate got no rows, expected at least one.")
    first = batch[0]
    if isinstance(first, str):
        return list(batch)
    if isinstance(first, Mapping):
        if any(row.keys() != first.keys() for row in batch):
            raise SchemaError(f"default_collate got rows with different keys; the first has {list(first)}.")
        columns: dict[Any, Any] = {key: [row[key] for row in batch] for key in first}
        for key, column in columns.items():
            if not str(key).startswith(tuple(ignore_prefix)):
                columns[key] = default_collate(column, cat_1dim, ignore_prefix)
        return columns
    if isinstance(first, (list, tuple)):
        if any(len(row) != len(first) for row in batch):
            raise SchemaError(f"default_collate got sequences of lengths {sorted({len(row) for row in batch})}.")
        entries = [default_collate(column, cat_1dim, ignore_prefix) for column in zip(*batch, strict=True)]
        return type(first)(*entries) if hasattr(first, "_fields") else entries
    if not isinstance(first, (torch.Tensor, np.ndarray, np.generic, bool, int, float)):
        raise SchemaError(
            f"default_collate got a {type(first).__name__}; expected tensors, arrays, numbers, text, or dicts and "
            f"lists of them. To keep a list of something else, begin its key with one of {list(ignore_prefix)}."
        )
    tensors = [torch.as_tensor(row, dtype=torch.float32 if isinstance(row, float) else None) for row in batch]
    if len({tensor.shape for tensor in tensors}) > 1:
        raise SchemaError(f"default_collate got shapes {sorted({tuple(tensor.shape) for tensor in tensors})}.")
    return torch.cat(tensors) if cat_1dim and tensors[0].shape == (1,) else torch.stack(tensors)


def default_decollate(batch: Any, ignore: Sequence[str] = _STATES) -> list[Any]:
    """Return the B rows of a result of `default_collate`: tensors [B, ...] give rows [...], and tensors [B] rows [1].

    What a dict has under a key of `ignore` holds one entry a row already. Raises SchemaError for other types, and for
    entries of different B.
    """
    import torch

    if isinstance(batch, torch.Tensor):
        return list(batch.unsqueeze(1) if batch.dim() == 1 else batch)
    if isinstance(batch, Mapping):
        columns = [value if key in ignore else default_decollate(value, ignore) for key, value in batch.items()]
        return [dict(zip(batch, row, strict=True)) for row in _transposed(columns)]
    if isinstance(batch, (list, tuple)):
        if all(isinstance(entry, str) for entry in batch):
            return list(batch)
        rows = _transposed([default_decollate(entry, ignore) for entry in batch])
        return [type(batch)(*row) for row in rows] if hasattr(batch, "_fields") else [list(row) for row in rows]
    raise SchemaError(f"default_decollate got a {type(batch).__name__}, expected tensors, or dicts and lists of them.")


def _transposed(columns: list[list[Any]]) -> list[tuple[Any, ...]]:
    sizes = sorted({len(column) for column in columns})
    if len(sizes) > 1:
        raise SchemaError(f"default_decollate got entries of {sizes} rows, expected the same number in each.")
    return list(zip(*columns, strict=True))


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
    convert = partial(_convert, leaf=leaf, joins_numbers=joins_numbers, ignore_keys=ignore_keys)
    if isinstance(item, Mapping):
        make: Any = type(item)
        return make({key: value if key in ignore_keys else convert(value) for key, value in item.items()})
    if isinstance(item, (list, tuple)):
        if joins_numbers and item and all(isinstance(each, (bool, int, float, np.generic)) for each in item):
            return leaf(list(item))
        items = [convert(each) for each in item]
        return type(item)(*items) if hasattr(item, "_fields") else type(item)(items)
    return leaf(item)


def _plain(leaf: Any) -> Any:
    """Return a tensor as an array on the CPU, anything else as it is."""
    return leaf.detach().cpu().numpy() if hasattr(leaf, "detach") else leaf
