"""Rings of rows: columns where rows have a schema, objects where not.

A storage knows no sampling: samplers choose by age (0 is the oldest row that is left), and `rows` turns ages into
places.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np

from ding_like.data.batch import TransitionBatch
from ding_like.data.compiled import take_rows
from ding_like.data.schema import Field, Schema
from ding_like.types import Array
from ding_like.utils.machine import check_buffer_memory

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


class RingStorage(ABC):
    """Place rows one after another in `capacity` places; new ones overwrite the oldest."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.next_row = 0
        self.count = 0

    def rows(self, ages: Array) -> Array:
        """Return the places of rows by age: 0 is the oldest row, `count - 1` the newest.

        In a ring that is full, places of the older rows are counted from its end: -1 is the last place.
        """
        oldest = self.next_row - self.count
        return ages if oldest == 0 else ages + oldest

    def append(self, data: Sequence[Any]) -> None:
        """Copy rows in; of more than `capacity`, only the last stay.

        Raises SchemaError, and changes nothing, if they do not fit what is stored.
        """
        source = self._accept(data)
        size, start = len(data), self.next_row
        if start + size <= self.capacity:
            self._write(source, slice(start, start + size), None)
        else:
            self._write_around(source, size)
        self.next_row = (start + size) % self.capacity
        self.count = min(self.count + size, self.capacity)

    def _write_around(self, source: Any, size: int) -> None:
        skipped = max(size - self.capacity, 0)
        start = (self.next_row + skipped) % self.capacity
        first = min(size - skipped, self.capacity - start)
        self._write(source, slice(start, start + first), slice(skipped, skipped + first))
        self._write(source, slice(0, size - skipped - first), slice(skipped + first, size))

    def dump(self) -> Sequence[Any]:
        """Return all data, oldest first, in fresh memory."""
        return self.gather(self.rows(np.arange(self.count)))

    @property
    @abstractmethod
    def num_bytes(self) -> int:
        """Return about how much memory the data take."""

    @abstractmethod
    def gather(self, rows: Array) -> Sequence[Any]:
        """Return the data at these places, in fresh memory."""

    @abstractmethod
    def _accept(self, data: Sequence[Any]) -> Any:
        """Return `data` as `_write` takes it. Raises SchemaError if it does not fit."""

    @abstractmethod
    def _write(self, source: Any, places: slice, part: slice | None) -> None:
        """Copy `source[part]`, or all of it for None, into these places."""


class ColumnStorage(RingStorage):
    """Keep every column of a schema in one preallocated array [capacity, ...].

    A column of whole numbers that is pushed floats widens to hold both.
    """

    def __init__(self, capacity: int, schema: Schema) -> None:
        super().__init__(capacity)
        check_buffer_memory(capacity, schema.row_bytes)
        self.schema = schema
        self._columns = schema.allocate(capacity)

    @property
    def num_bytes(self) -> int:
        return self.count * self.schema.row_bytes

    def gather(self, rows: Array) -> TransitionBatch:
        return TransitionBatch.of_length(len(rows), take_rows(self._columns, rows, self.capacity))

    def _accept(self, data: Any) -> Mapping[str, Array]:
        columns: Mapping[str, Array] = data.columns
        fits = len(columns) == len(self._columns)
        for name, own in self._columns.items():
            column = columns.get(name)
            # numpy would silently broadcast a wrong shape and cast a wrong dtype.
            if column is None or column.dtype is not own.dtype or column.shape[1:] != own.shape[1:]:
                fits = False
        if fits:
            return columns
        # A tensor, or an equal dtype that is another object, is fine after all.
        fitted = self._fit({name: np.asarray(column) for name, column in columns.items()})
        fitted.schema.check(fitted.columns, where="the buffer", widens=True)
        self._widen(fitted.schema)
        return fitted.columns

    def _fit(self, columns: Mapping[str, Array]) -> Fit:
        """Return what `fit` says of columns that are to come to the ones kept."""
        return fit(columns, {name: column[: self.count] for name, column in self._columns.items()}, self.schema)

    def _widen(self, schema: Schema) -> None:
        """Keep columns in the dtypes of a schema from now on."""
        for name, field in schema.items():
            own = self._columns[name]
            if own.dtype != field.dtype:
                say_widened(name, own.dtype, field.dtype)
                self._columns[name] = own.astype(field.dtype)
        self.schema = schema

    def _write(self, source: Mapping[str, Array], places: slice, part: slice | None) -> None:
        for name, own in self._columns.items():
            own[places] = source[name] if part is None else source[name][part]


class ObjectStorage(RingStorage):
    """Keep Python objects of any kind; copies are deep, so this is for what has no columns."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._objects: list[Any] = [None] * capacity

    @property
    def num_bytes(self) -> int:
        # The newest object stands for all: walking through a million would cost more than the answer is worth.
        return self.count * _size_bytes(self._objects[self.next_row - 1])

    def gather(self, rows: Array) -> list[Any]:
        # One by one: an object that is drawn twice must not come back as one.
        return [deepcopy(self._objects[row]) for row in rows.tolist()]

    def _accept(self, data: Sequence[Any]) -> list[Any]:
        return deepcopy(list(data))

    def _write(self, source: list[Any], places: slice, part: slice | None) -> None:
        self._objects[places] = source if part is None else source[part]


def _size_bytes(value: Any) -> int:
    if isinstance(value, Mapping):
        return sum(_size_bytes(inner) for inner in value.values())
    if isinstance(value, (list, tuple)):
        return sum(_size_bytes(inner) for inner in value)
    return int(getattr(value, "nbytes", 8))
