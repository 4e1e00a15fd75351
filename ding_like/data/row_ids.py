"""Write ids of rows as DI-engine does, `<buffer>_<number>`, and read them; inside they are numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ding_like.errors import SchemaError

ROW_ID = "replay_unique_id"

# The id of a row of another buffer: no row of ours has it.
_FOREIGN = int(np.iinfo(np.int64).min)


def as_text(instance_name: str, number: int) -> str:
    """Return the id of row `number` of the buffer of this name."""
    return f"{instance_name}_{number}"


def number_of(text: str) -> int:
    """Return the number in an id. Raises SchemaError for a text that is none."""
    number = text.rpartition("_")[2]
    if not number.isdecimal():
        raise SchemaError(f"{ROW_ID} is {text!r}, expected a number or a text like 'buffer_17', as samples have it.")
    return int(number)


def as_numbers(ids: Any, instance_name: str) -> Any:
    """Return ids with texts as numbers, -2^63 for those of another buffer; anything without texts as it is.

    Raises SchemaError for a text that is no id.
    """
    if isinstance(ids, np.ndarray) and ids.dtype.kind in "iu":  # as a rule
        return ids
    if not isinstance(ids, (Sequence, np.ndarray)) or not any(isinstance(each, str) for each in ids):
        return ids
    return np.array([_own_number(each, instance_name) for each in ids], np.int64)


def _own_number(each: Any, instance_name: str) -> int:
    if not isinstance(each, str):
        return int(each)
    number = number_of(each)
    return number if each == as_text(instance_name, number) else _FOREIGN


__all__ = ["ROW_ID", "as_numbers", "as_text", "number_of"]
