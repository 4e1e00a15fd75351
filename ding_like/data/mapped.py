"""Columns that stay in their file: arrays of a mapping, of which random rows and pieces are read without its pages.

A page of a mapping counts as memory of the process once it has been touched, and so does what the kernel maps around
it: 256 random rows of six columns of a file of 2 GB map a gigabyte. Reads of the file (`preadv`) map nothing. Windows
has no `preadv`: columns are read through the mapping there.
"""

from __future__ import annotations

import math
import mmap
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from ding_like.errors import SchemaError
from ding_like.types import Array

PIECE_BYTES = 4 << 20  # of a column, in passes over all of it


class OpenFile:
    """File whose columns are arrays; it is closed when the last of them is gone."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.descriptor = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self.descriptor)
        self._map = mmap.mmap(self.descriptor, 0, access=mmap.ACCESS_READ)

    def column(self, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> FileColumn:
        """Return the column [N, ...] whose rows begin at `offset`. Raises ValueError where the file is too short."""
        flat = np.frombuffer(self._map, dtype, math.prod(shape), offset) if math.prod(shape) else np.empty(0, dtype)
        column = flat.reshape(shape).view(FileColumn)
        column.file, column.offset = self, offset
        return column

    def read(self, out: Array, offset: int) -> None:
        """Fill an array with the bytes from `offset` on. Raises SchemaError where they have gone."""
        self._check(_preadv(self)(self.descriptor, [_bytes_of(out)], offset), out.nbytes)

    def read_rows(self, out: Array, rows: Array, offset: int) -> None:
        """Fill an array [R, ...] with these rows [R] of the column at `offset`."""
        if not out.nbytes:
            return
        width = out.nbytes // len(out)
        parts = _bytes_of(out)
        starts = zip(range(0, out.nbytes, width), (rows * width + offset).tolist(), strict=True)
        fd, preadv = self.descriptor, _preadv(self)  # one call a row and column: this is the time of a draw
        self._check(sum(preadv(fd, [parts[to : to + width]], at) for to, at in starts), out.nbytes)

    def copy_mapped(self, _: int, buffers: Sequence[memoryview], offset: int) -> int:
        """Do the work of `os.preadv` through the mapping: fill one buffer, return how many bytes were there."""
        (out,) = buffers
        with memoryview(self._map) as view, view[offset : offset + len(out)] as found:
            out[: len(found)] = found
            return len(found)

    def _check(self, found: int, expected: int) -> None:
        if found != expected:
            raise SchemaError(f"{self.path} has become shorter since it was opened: put the whole file back.")


def _preadv(file: OpenFile) -> Callable[[int, Sequence[memoryview], int], int]:
    return getattr(os, "preadv", file.copy_mapped)


def _bytes_of(array: Array) -> memoryview:
    return memoryview(cast(Any, array.reshape(-1).view(np.uint8)))  # numpy's types declare no buffer before Python 3.12


class FileColumn(np.ndarray[Any, Any]):
    """Column [N, ...] of a file, an array as any other; `take` and `pieces` read its rows and map no pages."""

    file: OpenFile | None  # None: a view of a column, or a result
    offset: int

    def __array_finalize__(self, obj: object) -> None:
        self.file, self.offset = None, 0

    def take(self, indices: Any, axis: Any = None, out: Any = None, mode: Any = "raise") -> Any:
        """Return rows in fresh memory, as of any array."""
        if self.file is None or axis != 0 or out is not None or np.ndim(indices) != 1:
            return np.asarray(self).take(indices, axis, out, mode)
        rows = np.asarray(indices, np.int64)
        if len(rows) and not (rows.min() >= 0 and rows.max() < len(self)):
            raise IndexError(f"rows {rows.min()} to {rows.max()} of a column of {len(self)}")
        taken = np.empty((len(rows), *self.shape[1:]), self.dtype)
        self.file.read_rows(taken, rows, self.offset)
        return taken


def in_memory(column: Array) -> Array:
    """Return a column that stays in a file as an array of its own, any other as it is."""
    return np.array(column) if isinstance(column, FileColumn) else column


def pieces(*columns: Array) -> Iterator[tuple[int, list[Array]]]:
    """Yield (number of the first row, the same rows of each column) in order, a few megabytes at a time."""
    widest = max(column.nbytes // max(1, len(column)) for column in columns)
    rows, total = max(1, PIECE_BYTES // max(1, widest)), len(columns[0])
    for start in range(0, total, rows):
        yield start, [_piece(column, start, min(rows, total - start)) for column in columns]


def _piece(column: Array, start: int, rows: int) -> Array:
    file = getattr(column, "file", None)
    if file is None:
        return column[start : start + rows]
    part = np.empty((rows, *column.shape[1:]), column.dtype)
    if part.nbytes:
        file.read(part, cast(FileColumn, column).offset + start * (part.nbytes // rows))
    return part
