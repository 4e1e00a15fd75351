"""Log of transitions in order of arrival, until a policy makes training rows of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ding_like.data.batch import Schema
from ding_like.errors import SchemaError
from ding_like.types import Array, State


class LaneIndex(NamedTuple):
    """Row numbers of step t of lane e of a rollout; lanes shorter than T are padded with row 0."""

    row: Array  # [T, E] int64, row numbers
    valid: Array  # [T, E] bool, False on padding
    length: Array  # [E] int64, rows per lane


class Rollout:
    """Contiguous columns of the rows of E lanes, in order of arrival.

    Column `lane` tells the lanes apart. If every append held all lanes in order the log *is* [T, E] by a reshape;
    otherwise one stable sort by lane gives the ragged lanes.
    """

    def __init__(self, num_lanes: int, *, capacity: int = 256) -> None:
        self.num_lanes = num_lanes
        self._capacity = max(capacity, num_lanes)
        self._columns: dict[str, Array] = {}
        self._schema: Schema | None = None
        # Rows of an append -> (column, dtype, number of elements) by name: what such an append is held against.
        self._targets: dict[int, dict[str, tuple[Array, np.dtype[Any], int]]] = {}
        self._size = 0
        self._owns = True  # the memory of the columns
        self.is_rectangular = True  # every append held all lanes, in order

    @classmethod
    def over(cls, columns: Mapping[str, Array]) -> Rollout:
        """Return the log of one lane whose rows are these columns themselves, not copies; it is read only."""
        log = cls(1)
        log._capacity = log._size = len(next(iter(columns.values())))
        log._columns, log._schema, log._owns = dict(columns), Schema.of(columns), False
        return log

    def __len__(self) -> int:
        return self._size

    def append(self, columns: Mapping[str, Array], *, is_full_step: bool | None = None) -> None:
        """Copy R rows in; `columns` must include `lane` [R].

        Raises SchemaError if names, shapes or dtypes differ from earlier rows, before anything is kept; of dtypes only
        a wider one of the same kind may be stored (float64 for float32). A caller that knows whether the rows are all
        lanes in order passes `is_full_step`.
        """
        lanes = columns["lane"]
        rows = len(lanes)
        start, stop = self._size, self._size + rows
        if self._schema is None:
            self._begin(columns)
        if stop > self._capacity:
            self._grow(stop)
        targets = self._targets.get(rows)
        if targets is None:
            own_columns = self._columns.items()
            targets = {name: (own, own.dtype, rows * math.prod(own.shape[1:])) for name, own in own_columns}
            self._targets[rows] = targets
        if len(columns) != len(targets):
            self._refuse(columns)
        where = slice(start, stop)
        for name, column in columns.items():
            try:
                own, dtype, size = targets[name]
            except KeyError:
                self._refuse(columns)
            # Of two arrays of one size, numpy copies one into the other only where their rows have one shape: comparing
            # shapes would cost as much as copying them.
            if column.dtype is not dtype or column.size != size:
                self._check(columns)
            try:
                own[where] = column
            except ValueError:
                self._refuse(columns)
        self._size = stop
        if is_full_step is None:
            is_full_step = rows == self.num_lanes and bool((lanes == np.arange(rows)).all())
        self.is_rectangular &= is_full_step

    def _begin(self, columns: Mapping[str, Array]) -> None:
        """Take the schema of the first rows. Raises SchemaError if the columns differ in length."""
        schema = Schema.of(columns)
        schema.check(columns, where="the rollout", rows=len(columns["lane"]))
        self._schema, self._columns = schema, schema.allocate(self._capacity)

    def _refuse(self, columns: Mapping[str, Array]) -> NoReturn:
        """Raise SchemaError naming each column that does not fit, what it has, and what is stored."""
        self._check(columns)
        raise SchemaError("the rollout refuses rows that differ from earlier ones.")

    def _check(self, columns: Mapping[str, Array]) -> None:
        """Raise SchemaError unless each column can be stored without a loss."""
        assert self._schema is not None, "the first rows make the schema"
        self._schema.check(columns, where="the rollout", rows=len(columns["lane"]), widens=True)

    def _grow(self, rows: int) -> None:
        self._capacity = max(rows, 2 * self._capacity)
        for name, column in self._columns.items():
            bigger = np.zeros((self._capacity, *column.shape[1:]), column.dtype)
            bigger[: self._size] = column[: self._size]
            self._columns[name] = bigger
        self._targets = {}

    def __getitem__(self, name: str) -> Array:
        return self._columns[name][: self._size]

    def columns(self) -> dict[str, Array]:
        """Return views of all columns; they are overwritten by later appends."""
        if not self._owns:  # a view of a column of a file is none
            return dict(self._columns)
        return {name: column[: self._size] for name, column in self._columns.items()}

    def as_lanes(self) -> LaneIndex:
        """Return where each lane's rows lie, in order of time."""
        lanes = self.num_lanes
        if self.is_rectangular:
            steps = self._size // lanes
            row = np.arange(self._size, dtype=np.int64).reshape(steps, lanes)
            return LaneIndex(row, np.ones((steps, lanes), bool), np.full(lanes, steps, np.int64))
        lane = self["lane"]
        order = lane.argsort(kind="stable")
        length = np.bincount(lane, minlength=lanes).astype(np.int64)
        time = np.arange(self._size) - np.repeat(length.cumsum() - length, length)
        row = np.zeros((int(length.max(initial=0)), lanes), np.int64)
        row[time, lane[order]] = order
        valid = np.arange(len(row))[:, None] < length
        return LaneIndex(row, valid, length)

    def keep_last(self, keep: Array) -> None:
        """Forget all but the last `keep[e]` rows of each lane; the order of arrival stays."""
        if not np.count_nonzero(keep):
            self.clear()
            return
        lanes = self.as_lanes()
        time = np.arange(len(lanes.row))[:, None]
        stays = lanes.valid & (time >= lanes.length - keep)
        self._keep_rows(np.sort(lanes.row[stays]), uniform=bool((keep == keep[0]).all()))

    def drop_last(self, lane: int, rows: int) -> None:
        """Forget the last `rows` rows of one lane: its open episode broke off."""
        if rows == 0:
            return
        mine = np.flatnonzero(self["lane"] == lane)
        stays = np.ones(self._size, bool)
        stays[mine[len(mine) - rows :]] = False
        self._keep_rows(np.flatnonzero(stays), uniform=False)

    def _keep_rows(self, rows: Array, *, uniform: bool) -> None:
        for column in self._columns.values():
            column[: len(rows)] = column[rows]
        self._size = len(rows)
        # Equal tails of a rectangle are a rectangle; anything else needs the sort by lane.
        self.is_rectangular = not len(rows) or (uniform and self.is_rectangular)

    def clear(self) -> None:
        """Forget all rows; memory and schema stay."""
        self._size = 0
        self.is_rectangular = True

    def state_dict(self) -> State:
        """Return the rows, for an exact resume."""
        rows: dict[str, Any] = {name: column.copy() for name, column in self.columns().items()}
        for name, column in rows.items():
            if column.dtype.hasobject:  # `info` of envs: a file of a state takes plain data
                rows[name] = _plain(column.tolist())
        return {"columns": rows, "is_rectangular": self.is_rectangular}

    def load_state_dict(self, state: State) -> None:
        """Take over what `state_dict` returned."""
        self._schema, self._columns, self._targets = None, {}, {}
        self.clear()
        columns = {name: _as_column(column) for name, column in state["columns"].items()}
        if columns:  # none of them may hold a row: then their dtypes count, which later rows must fit
            self.append(columns)
        self.is_rectangular = state["is_rectangular"]


def _as_column(values: Any) -> Array:
    """Return a column as it is, and a list as a column of objects."""
    if not isinstance(values, list):
        return np.asarray(values)
    objects = np.empty(len(values), object)
    objects[:] = values
    return objects


def _plain(value: Any) -> Any:
    """Return a tree of plain Python and numpy; what is neither, which a file of a state cannot hold, as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject:
        return value
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)
