"""Pack a nested state of tensors and plain numbers for its way between a host and its workers, and back.

Plain, it is safetensors bytes in an array, which Ray carries without copying them; compressed, an lz4 frame of these.
Nothing can be executed from either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load, save

from ding_like.comm.flat_state import flatten_state, unflatten_state
from ding_like.comm.weights.encode import from_bytes, to_bytes
from ding_like.errors import CommError, ConfigError
from ding_like.types import Array, State
from ding_like.utils.extras import pip_line


class PackedState(NamedTuple):
    """Hold a state's bytes, in memory of their own."""

    is_compressed: bool  # the body is an lz4 frame
    body: Array  # uint8 [N]


def pack_state(state: Mapping[str, Any], *, compress: bool = False) -> PackedState:
    """Return a copy of a state as bytes. Raises CommError, naming the place, for values that cannot travel."""
    flat = {name: tensor.detach() for name, tensor in flatten_state(state).items()}
    if not compress:
        return PackedState(False, to_bytes(flat))
    data = save({name: tensor.cpu().contiguous() for name, tensor in flat.items()})
    return PackedState(True, np.frombuffer(_lz4().compress(data, content_checksum=True), np.uint8))


def unpack_state(packed: PackedState) -> State:
    """Return the state, in memory of its own unless the bytes may be written to. Raises CommError for other bytes."""
    if not packed.is_compressed:
        return unflatten_state(from_bytes(packed.body)[0])
    try:
        flat = load(_lz4().decompress(packed.body.data))
    except (RuntimeError, SafetensorError) as error:
        raise CommError(f"{packed.body.size:,} bytes are no compressed state: {error}") from error
    return unflatten_state(flat)


def _lz4() -> Any:  # Any: a module without types, of an extra
    try:
        import lz4.frame

        return lz4.frame
    except ImportError as error:
        raise ConfigError(
            f"gradients are compressed by the package lz4, which is not installed: {pip_line('ray')}, or set "
            "compress=False."
        ) from error
