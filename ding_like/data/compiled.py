"""Inner loops in C where they were built, and in numpy where they were not."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ding_like.types import Array

logger = logging.getLogger(__name__)


class CompiledPart(NamedTuple):
    """Modules in C; Any: mypy cannot read them."""

    sum_tree: Any
    rows: Any


@functools.cache
def compiled_part() -> CompiledPart | None:
    """Return the inner loops in C, None where they were not built; the log says which, once."""
    try:
        from ding_like.data import _buffer_rows, _sum_tree
    except ImportError as error:
        logger.info("replay buffers run in numpy: their compiled part was not built (%s)", error)
        return None
    logger.info("replay buffers run in their compiled part")
    return CompiledPart(_sum_tree, _buffer_rows)


def take_rows(columns: Mapping[str, Array], rows: Array, capacity: int) -> dict[str, Array]:
    """Return rows [B] int64 of columns [C, ...] in fresh memory; -C to -1 count from the end."""
    part = compiled_part()
    if part is None:
        return {name: column.take(rows, 0) for name, column in columns.items()}
    size = len(rows)
    taken = {name: np.empty((size, *column.shape[1:]), column.dtype) for name, column in columns.items()}
    part.rows.take_rows(tuple(columns.values()), np.ascontiguousarray(rows, np.int64), tuple(taken.values()), capacity)
    return taken


def first_distinct(draws: Array, num: int, size: int) -> Array:
    """Return the first `size` different ones of floor(draws * num), fewer if there are not so many; int64.

    `draws` [M] float64 are in [0, 1).
    """
    part = compiled_part()
    if part is None:
        picks = (draws * num).astype(np.int64)
        first = np.unique(picks, return_index=True)[1]
        first.sort()
        return picks.take(first[:size])
    found = np.empty(size, np.int64)
    count = part.rows.first_distinct(draws, float(num), found)
    return found if count == size else found[:count]
