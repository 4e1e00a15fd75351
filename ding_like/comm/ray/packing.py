"""Rows and states as safetensors bytes, optionally in one lz4 frame, for their way between Ray workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load, save

from ding_like.comm.column_bytes import pack, unpack
from ding_like.comm.flat_state import flatten_state, unflatten_state
from ding_like.data.batch import TransitionBatch
from ding_like.errors import CommError, ConfigError
from ding_like.types import Array, State
from ding_like.utils.imports import pip_line

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
    data: bytes = save(flat)
    return np.frombuffer(_compressed(data) if compress else data, np.uint8)


def unpack_state(packed: Array) -> State:
    """Return the state, in memory of its own. Raises CommError for other bytes."""
    data = packed.tobytes()
    try:
        return unflatten_state(load(_decompressed(data) if data.startswith(_LZ4_MAGIC) else data))
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
