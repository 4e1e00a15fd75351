"""Columns, rows and states as safetensors bytes, from which nothing can be executed, and back.

For their way between Ray workers rows and states may be one lz4 frame.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors import numpy as arrays_format
from safetensors import torch as tensors_format

from ding_like.comm.flat_state import flatten_state, unflatten_state
from ding_like.data.batch import SequenceBatch, TransitionBatch
from ding_like.errors import CommError, ConfigError
from ding_like.types import Array, Config, Section, State
from ding_like.utils.imports import pip_line

_HEADER = "~header"
_PARTS = ("columns", "initial", "per_window")  # of a batch of windows


def pack(columns: Mapping[str, Array], header: Config) -> bytes:
    """Return columns and a JSON-like header as safetensors. Raises CommError for columns of objects."""
    # Not ascontiguousarray, which makes a list of a lone number.
    arrays = {name: np.asarray(column, order="C") for name, column in columns.items()}
    for name, array in arrays.items():
        if array.dtype.kind not in "biuf":
            raise CommError(f"column '{name}' has dtype {array.dtype}; learners exchange numbers only.")
    data: bytes = arrays_format.save({**arrays, _HEADER: np.frombuffer(json.dumps(header).encode(), np.uint8)})
    return data


def unpack(data: bytes) -> tuple[dict[str, Array], Section]:
    """Return (columns, header) as `pack` was given them. Raises CommError for other bytes."""
    try:
        arrays: dict[str, Array] = arrays_format.load(data)
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


_LZ4_MAGIC = bytes.fromhex("04224d18")  # the first bytes of a frame; of safetensors they would be a header of 400 MB


def pack_rows(batch: TransitionBatch) -> bytes:
    """Return rows as one compressed frame."""
    # safetensors sorts the names; the order of columns is kept in the header.
    return _compressed(pack(batch.columns, {"names": list(batch.columns)}))


def unpack_rows(frame: bytes) -> TransitionBatch:
    """Return the rows of a frame, in memory of their own. Raises CommError for other bytes."""
    columns, header = unpack(_decompressed(frame))
    return TransitionBatch({name: columns[name].copy() for name in header["names"]})


def pack_state(state: Mapping[str, object], *, compress: bool = False) -> Array:
    """Return a copy of a nested state as bytes, uint8 [N]. Raises CommError, naming the place, for other values."""
    flat = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in flatten_state(state).items()}
    data: bytes = tensors_format.save(flat)
    return np.frombuffer(_compressed(data) if compress else data, np.uint8)


def unpack_state(packed: Array) -> State:
    """Return the state, in memory of its own. Raises CommError for other bytes."""
    data = packed.tobytes()
    try:
        return unflatten_state(tensors_format.load(_decompressed(data) if data.startswith(_LZ4_MAGIC) else data))
    except SafetensorError as error:
        raise CommError(f"{len(data):,} bytes are no packed state: {error}") from error


def _compressed(data: bytes) -> bytes:
    frame: bytes = _lz4().compress(data, content_checksum=True, store_size=True)
    return frame


def _decompressed(frame: bytes) -> bytes:
    try:
        data: bytes = _lz4().decompress(frame)
    except (RuntimeError, EOFError) as error:
        raise CommError(f"{len(frame):,} bytes are no lz4 frame, or were changed: {error}") from error
    return data


def _lz4() -> Any:  # Any: a module without types, of an extra
    try:
        import lz4.frame
    except ImportError as error:
        raise ConfigError(f"compress=True needs the package lz4: {pip_line('ray')}, or set compress=False.") from error
    return lz4.frame
