"""Schema of columns: names, shapes and dtypes; every mismatch error comes from here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ding_like.errors import SchemaError
from ding_like.types import Array, Json


class Field(NamedTuple):
    """Shape and dtype of one row of one column."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __str__(self) -> str:
        return f"{self.dtype.name}{list(self.shape)}"


class Schema(Mapping[str, Field]):
    """Mapping of column names to the shape and dtype of one row."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, Field]) -> None:
        self._fields = dict(fields)

    @classmethod
    def of(cls, columns: Mapping[str, Array]) -> Schema:
        """Read the schema off columns [B, ...]."""
        return cls({name: Field(column.shape[1:], column.dtype) for name, column in columns.items()})

    def __getitem__(self, name: str) -> Field:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return "Schema(" + ", ".join(f"{name}: {field}" for name, field in self._fields.items()) + ")"

    @property
    def row_bytes(self) -> int:
        """Size of one row over all columns, in bytes."""
        return sum(int(np.prod(field.shape)) * field.dtype.itemsize for field in self._fields.values())

    def allocate(self, rows: int) -> dict[str, Array]:
        """Return zeroed columns of `rows` rows."""
        return {name: np.zeros((rows, *field.shape), field.dtype) for name, field in self._fields.items()}

    def check(self, columns: Mapping[str, Array], *, where: str, rows: int | None = None, widens: bool = False) -> None:
        """Raise SchemaError naming every column that is missing, unexpected, or of another shape or dtype.

        With `rows` each must have so many. `widens` says that what is stored takes a narrower dtype of the same kind.
        """
        faults = [f"column '{name}' is missing" for name in self._fields if name not in columns]
        for name, column in columns.items():
            field = self._fields.get(name)
            if field is None:
                faults.append(f"column '{name}' is not stored; known columns: {', '.join(self._fields)}")
            elif rows is not None and (column.ndim == 0 or len(column) != rows):
                faults.append(
                    f"column '{name}' has shape {list(column.shape)}, expected an entry for each of {rows} rows"
                )
            elif column.shape[1:] != field.shape or not _fits(column.dtype, field.dtype, widens=widens):
                faults.append(
                    f"column '{name}' has rows {Field(column.shape[1:], column.dtype)}, {where} holds {field}"
                )
        if faults:
            raise SchemaError(f"{where} refuses a batch: " + "; ".join(faults) + ".")

    def to_json(self) -> dict[str, Json]:
        """Return plain data from which `from_json` makes an equal schema."""
        return {name: [list(field.shape), field.dtype.str] for name, field in self._fields.items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Schema:
        """Rebuild a schema that `to_json` wrote."""
        return cls({name: Field(tuple(shape), np.dtype(dtype)) for name, (shape, dtype) in data.items()})

    def hash(self) -> str:
        """Return a short stable name of this schema, the same in every process."""
        text = json.dumps(self.to_json(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def can_hold(stored: Mapping[str, Array], columns: Mapping[str, Array], *, rows: int | None = None) -> bool:
    """Return whether columns can be copied into those of the same names without a loss; `rows` as in `Schema.check`."""
    if stored.keys() != columns.keys():
        return False
    return all(
        column.ndim == stored[name].ndim
        and column.shape[1:] == stored[name].shape[1:]
        and (rows is None or len(column) == rows)
        and _fits(column.dtype, stored[name].dtype, widens=True)
        for name, column in columns.items()
    )


def _fits(given: np.dtype[Any], stored: np.dtype[Any], *, widens: bool) -> bool:
    """Return whether a dtype is the stored one or, if it `widens`, a narrower one of its kind."""
    return given == stored or (widens and given.kind == stored.kind and np.can_cast(given, stored, "safe"))
