"""Write columns and a header as bytes that nothing can be executed from, and read them back."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ding_like.data.batch import SequenceBatch, TransitionBatch
from ding_like.errors import CommError
from ding_like.types import Array, Config, Section

_HEADER = "~header"
_PARTS = ("columns", "initial", "per_window")  # of a batch of windows


def pack(columns: Mapping[str, Array], header: Config) -> bytes:
    """Return columns and a JSON-like header as safetensors. Raises CommError for columns of objects."""
    # Not ascontiguousarray, which makes a list of a lone number.
    arrays = {name: np.asarray(column, order="C") for name, column in columns.items()}
    for name, array in arrays.items():
        if array.dtype.kind not in "biuf":
            raise CommError(f"column '{name}' has dtype {array.dtype}; learners exchange numbers only.")
    data: bytes = save({**arrays, _HEADER: np.frombuffer(json.dumps(header).encode(), np.uint8)})
    return data


def unpack(data: bytes) -> tuple[dict[str, Array], Section]:
    """Return (columns, header) as `pack` was given them. Raises CommError for other bytes."""
    try:
        arrays: dict[str, Array] = load(data)
        header: Section = json.loads(arrays.pop(_HEADER).tobytes())
    except (SafetensorError, KeyError, ValueError) as error:
        raise CommError(f"{len(data)} bytes hold no columns: {error}") from error
    return arrays, header


def pack_batch(batch: TransitionBatch | SequenceBatch, header: Config) -> bytes:
    """Return rows, or windows of them, and a header as bytes; see `pack`."""
    if isinstance(batch, TransitionBatch):
        return pack(batch.columns, {"is_of_windows": False, **header})
    parts = (batch.columns, batch.initial, batch.per_window)
    named = {f"{part}/{name}": each for part, group in zip(_PARTS, parts, strict=True) for name, each in group.items()}
    return pack(named, {"is_of_windows": True, **header})


def unpack_batch(data: bytes) -> tuple[TransitionBatch | SequenceBatch, Section]:
    """Return (the batch, the header) that `pack_batch` was given. Raises CommError for other bytes."""
    columns, header = unpack(data)
    if not header.pop("is_of_windows", False):
        return TransitionBatch(columns), header
    parts: dict[str, dict[str, Array]] = {part: {} for part in _PARTS}
    for key, column in columns.items():
        part, _, name = key.partition("/")
        if part not in parts:
            raise CommError(f"a batch of windows has the column {key!r}; expected it in one of {', '.join(_PARTS)}.")
        parts[part][name] = column
    return SequenceBatch(*parts.values()), header


def padded(data: bytes, size: int) -> torch.Tensor:
    """Return bytes as a tensor of uint8 [size]."""
    tensor = torch.empty(size, dtype=torch.uint8)
    tensor.numpy()[: len(data)] = np.frombuffer(data, np.uint8)
    return tensor


def schema_of(columns: Mapping[str, Array]) -> dict[str, str]:
    """Return dtype and shape of a row by the name of its column."""
    return {name: f"{column.dtype}{list(column.shape[1:])}" for name, column in columns.items()}
