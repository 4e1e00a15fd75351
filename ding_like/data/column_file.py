"""Write equal-length columns to a file and read them back: safetensors, so nothing in a file is ever executed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from ding_like.errors import CheckpointError
from ding_like.types import Array
from ding_like.utils.files import atomic_write

_FORMAT = "ding_like columns 1"


def save_columns(path: str | os.PathLike[str], columns: Mapping[str, Array]) -> None:
    """Write columns to a file, whole or not at all. Raises CheckpointError for a dtype that has no place in one."""
    arrays = {name: np.ascontiguousarray(column) for name, column in columns.items()}
    # safetensors sorts by dtype; rows come back with their columns in this order.
    meta = {"format": _FORMAT, "columns": json.dumps(list(arrays))}
    try:
        data = save(arrays, metadata=meta)
    except (SafetensorError, KeyError, TypeError) as error:
        kinds = ", ".join(f"{name} {array.dtype}" for name, array in arrays.items())
        raise CheckpointError(f"{path} cannot hold columns of these dtypes: {kinds} ({error}).") from error
    with atomic_write(path) as file:
        file.write(data)


def load_columns(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Return the columns that `save_columns` wrote. Raises CheckpointError for a damaged or foreign file."""
    try:
        with safe_open(path, framework="numpy") as file:
            meta = file.metadata() or {}
            if meta.get("format") != _FORMAT:
                raise CheckpointError(f"{path} has the format {meta.get('format')!r}, expected {_FORMAT!r}.")
            return {name: file.get_tensor(name) for name in json.loads(meta["columns"])}
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read as columns: {error}. It is damaged, or another file.") from error


def is_column_file(path: str | os.PathLike[str]) -> bool:
    """Tell whether a file begins as safetensors do: the length of a JSON header, then the header."""
    try:
        with open(path, "rb") as file:
            return file.read(9)[8:] == b"{"
    except OSError:
        return False
