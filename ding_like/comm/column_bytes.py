"""Write columns and a header as bytes that nothing can be executed from, and read them back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ding_like.errors import CommError
from ding_like.types import Array

_HEADER = "~header"


def pack(columns: Mapping[str, Array], header: Mapping[str, Any]) -> bytes:  # Any: of JSON
    """Return columns and a JSON-like header as safetensors. Raises CommError for columns of objects."""
    arrays = {name: np.ascontiguousarray(column) for name, column in columns.items()}
    for name, array in arrays.items():
        if array.dtype.kind not in "biuf":
            raise CommError(f"column '{name}' has dtype {array.dtype}; learners exchange numbers only.")
    data: bytes = save({**arrays, _HEADER: np.frombuffer(json.dumps(header).encode(), np.uint8)})
    return data


def unpack(data: bytes) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return (columns, header) as `pack` was given them. Raises CommError for other bytes."""
    try:
        arrays: dict[str, Array] = load(data)
        header: dict[str, Any] = json.loads(arrays.pop(_HEADER).tobytes())
    except (SafetensorError, KeyError, ValueError) as error:
        raise CommError(f"{len(data)} bytes hold no columns: {error}") from error
    return arrays, header
