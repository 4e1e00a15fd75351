"""Rows stacked into batches and taken apart, for code in DI-engine's style; ours has columns and needs neither."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        columns = {key: [row[key] for row in batch] for key in first}
        return {
            key: column
            if str(key).startswith(tuple(ignore_prefix))
            else default_collate(column, cat_1dim, ignore_prefix)
            for key, column in columns.items()
        }
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
