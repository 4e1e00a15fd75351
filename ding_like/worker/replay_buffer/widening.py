"""Let a column of whole numbers become one of floats, and the other way round, without losing a digit."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ding_like.data.schema import Field, Schema
from ding_like.types import Array

logger = logging.getLogger(__name__)

_WHOLE, _FLOAT = "iu", "f"
_WIDEST = np.dtype(np.float64)


class Fit(NamedTuple):
    """Hold columns as they can be stored, and the schema of the storage that takes them."""

    columns: dict[str, Array]
    schema: Schema


def fit(columns: Mapping[str, Array], stored: Mapping[str, Array], schema: Schema) -> Fit:
    """Return the columns and the schema that hold new and `stored` values [N, ...] exactly.

    Where one side has whole numbers and the other floats, the column becomes the narrowest float that holds both, or
    stays what it is. What cannot be held exactly, or differs in another way, is returned as it came.
    """
    fitted, fields = dict(columns), dict(schema)
    for name, column in columns.items():
        field = schema.get(name)
        if field is None or {field.dtype.kind in _WHOLE, column.dtype.kind in _WHOLE} != {True, False}:
            continue
        if field.dtype.kind not in _WHOLE + _FLOAT or column.dtype.kind not in _WHOLE + _FLOAT:
            continue
        asked = field.dtype if field.dtype.kind == _FLOAT else column.dtype
        for dtype in dict.fromkeys((asked, _WIDEST)):
            if _holds(dtype, column) and _holds(dtype, stored[name]):
                fitted[name], fields[name] = column.astype(dtype), Field(field.shape, dtype)
                break
    return Fit(fitted, Schema(fields))


def _holds(dtype: np.dtype[Any], values: Array) -> bool:
    """Tell whether a dtype of floats holds values without a loss."""
    if values.dtype.kind == _FLOAT:
        return values.dtype.itemsize <= dtype.itemsize
    # Whole numbers up to 2^p are exact with p bits of precision; larger ones may not be.
    limit = 2 ** (np.finfo(dtype).nmant + 1)
    return not values.size or (-limit <= int(values.min()) and int(values.max()) <= limit)


def say_widened(name: str, before: np.dtype[Any], after: np.dtype[Any]) -> None:
    """Say in the log that a column is kept in another dtype from now on."""
    logger.info(
        "column '%s' held %s and was pushed what that cannot hold: it is kept as %s from now on, without a loss.",
        name,
        before,
        after,
    )
