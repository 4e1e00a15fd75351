"""Batches of transitions, windows and episodes: columns inside, sequences of mappings outside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, overload

import numpy as np

from ding_like.errors import SchemaError
from ding_like.types import Array, Obs


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


def obs_to_columns(prefix: str, obs: Obs) -> dict[str, Array]:
    """Return `{prefix: obs}` or `{prefix/key: array}`."""
    if isinstance(obs, dict):
        return {f"{prefix}/{key}": value for key, value in obs.items()}
    return {prefix: obs}


def columns_to_obs(prefix: str, columns: Mapping[str, Any]) -> Any:
    """Return what `obs_to_columns` was given; works on arrays and on tensors (hence Any)."""
    if prefix in columns:
        return columns[prefix]
    start = f"{prefix}/"
    return {name[len(start) :]: column for name, column in columns.items() if name.startswith(start)}


def nest(row: Mapping[str, object]) -> dict[str, Any]:
    """Return what flat keys stand for: `{"obs/arm/angle": x}` is `{"obs": {"arm": {"angle": x}}}`.

    A name that would lie inside another one, which has a value of its own, stays as it is.
    """
    nested: dict[str, Any] = {}
    names = set(row)
    for name, value in row.items():
        *path, last = name.split("/")
        inner = nested
        if any("/".join(path[:depth]) in names for depth in range(1, len(path) + 1)):
            path, last = [], name
        for key in path:
            inner = inner.setdefault(key, {})
        inner[last] = value
    return nested


def map_obs(fn: Callable[[Any], Any], obs: Any) -> Any:
    """Return what `fn` makes of each array or tensor of an observation: of it alone, or of each in a dict."""
    return {key: map_obs(fn, value) for key, value in obs.items()} if isinstance(obs, dict) else fn(obs)


# Any: an array or a tensor, in a dict or not.
def num_rows(obs: Any) -> int:
    """Return B of observations [B, O...], or of a dict of them."""
    # Not len, which fixes B where a network is traced to be exported.
    rows: int = (next(iter(obs.values())) if isinstance(obs, dict) else obs).shape[0]
    return rows


# The entry of a dict observation with the mask of legal discrete actions.
ACTION_MASK = "action_mask"
# The entries of a dict observation with the action and the reward of the step before.
LAST_STEP = ("prev_action", "prev_reward_extrinsic")
# The column [B] of rows of which each weights the bonus of an exploration reward in its own way.
BONUS_WEIGHT = "bonus_weight"


def split_mask(obs: Any) -> tuple[Any, Any]:
    """Return (observation, action mask or None) of arrays or tensors; one entry beside the mask stands for itself."""
    if not isinstance(obs, dict) or ACTION_MASK not in obs:
        return obs, None
    rest = {key: value for key, value in obs.items() if key != ACTION_MASK}
    return (next(iter(rest.values())) if len(rest) == 1 else rest), obs[ACTION_MASK]


def take_lanes(obs: Obs, lanes: Array) -> Obs:
    """Return fresh rows [R, ...] of `lanes`."""
    if isinstance(obs, dict):
        return {key: value.take(lanes, axis=0) for key, value in obs.items()}
    return obs.take(lanes, axis=0)


def copy_obs(obs: Obs) -> Obs:
    """Return memory of its own."""
    if isinstance(obs, dict):
        return {key: value.copy() for key, value in obs.items()}
    return obs.copy()


def write_obs(target: Obs, source: Obs, lanes: Array | None = None) -> None:
    """Copy `source` into `target`, whole or into the rows of `lanes`."""
    if isinstance(target, dict):
        assert isinstance(source, dict), "a dict observation is written into a dict"
        for key, value in target.items():
            write_obs(value, source[key], lanes)
        return
    assert not isinstance(source, dict), "an array observation is written into an array"
    if lanes is None:
        np.copyto(target, source)
    else:
        target[lanes] = source


if TYPE_CHECKING:
    import torch

# numpy on the host, torch after `to(device)`.
Column: TypeAlias = Any

ROW_ID = "replay_unique_id"

# The id of a row of another buffer: no row of ours has it.
_FOREIGN = int(np.iinfo(np.int64).min)


# What DI-engine's API calls a column of ours: name -> (columns it needs, how to get it).
DI_ENGINE_KEYS: dict[str, tuple[tuple[str, ...], Callable[[Mapping[str, Column]], Column]]] = {
    "done": (("terminated", "truncated"), lambda columns: columns["terminated"] | columns["truncated"]),
    "IS": (("weight",), lambda columns: columns["weight"]),
    "collect_iter": (("policy_version",), lambda columns: columns["policy_version"]),
}


def columns_to(device: str | torch.device, columns: Mapping[str, Column]) -> dict[str, Column]:
    """Return columns as tensors on `device`; on the CPU they share memory with the arrays."""
    import torch

    from_numpy, ndarray = torch.from_numpy, np.ndarray  # looked up once: this runs for every column of every sample
    tensors = {name: from_numpy(column) if isinstance(column, ndarray) else column for name, column in columns.items()}
    if device != "cpu" and torch.device(device).type != "cpu":
        tensors = {name: tensor.to(device, non_blocking=True) for name, tensor in tensors.items()}
    return tensors


class TransitionBatch(Sequence[Mapping[str, Any]]):
    """Equal-length named columns; `batch["obs"]` is a column, `batch[3]` a read-only `Row`.

    Columns are numpy arrays [B, ...] on the host, tensors after `to(device)`. Slices are views; `take` and `concat`
    give fresh memory. A batch is never written into: `with_columns` returns a new one.
    Raises SchemaError if the columns differ in length.
    """

    # `buffer_name` is set where rows were sampled from a buffer: their ids are text that begins with it.
    __slots__ = ("_columns", "_length", "buffer_name")
    buffer_name: str

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self._columns = dict(columns)
        lengths = {len(column) for column in self._columns.values()}
        if len(lengths) > 1:
            sizes = ", ".join(f"{name} {len(column)}" for name, column in self._columns.items())
            raise SchemaError(f"columns of one batch must be equally long, got {sizes}.")
        self._length = lengths.pop() if lengths else 0

    @classmethod
    def of_length(cls, length: int, columns: dict[str, Column]) -> TransitionBatch:
        """Return a batch of columns that are all known to be `length` long, without looking; it keeps the dict."""
        batch = cls.__new__(cls)
        batch._columns, batch._length = columns, length
        return batch

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, key: str) -> Column: ...
    @overload
    def __getitem__(self, key: int) -> Row: ...
    @overload
    def __getitem__(self, key: slice) -> TransitionBatch: ...
    def __getitem__(self, key: str | int | slice) -> Any:
        if isinstance(key, str):
            return self._column(key)
        if isinstance(key, slice):
            part = TransitionBatch({name: column[key] for name, column in self._columns.items()})
            if hasattr(self, "buffer_name"):
                part.buffer_name = self.buffer_name
            return part
        if not -self._length <= key < self._length:
            raise IndexError(f"row {key} of a batch of {self._length}")
        return Row(self, key % self._length)

    def __iter__(self) -> Iterator[Row]:
        return (Row(self, i) for i in range(self._length))

    def __repr__(self) -> str:
        inside = ", ".join(f"{name} {list(column.shape[1:])} {column.dtype}" for name, column in self._columns.items())
        return f"TransitionBatch({self._length} rows: {inside})"

    def _column(self, name: str) -> Column:
        column = self._columns.get(name)
        if column is not None:
            return column
        needs, derive = DI_ENGINE_KEYS.get(name, ((), None))
        if derive is not None and all(need in self._columns for need in needs):
            return derive(self._columns)
        raise KeyError(f"no column '{name}'; this batch has {', '.join(self._columns)}")

    @property
    def columns(self) -> Mapping[str, Column]:
        """Columns by name, to be read only."""
        return self._columns

    @property
    def schema(self) -> Schema:
        """Shape and dtype of the (numpy) columns."""
        return Schema.of(self._columns)

    def take(self, index: Array) -> TransitionBatch:
        """Gather rows into fresh memory; `index` [N] of integers."""
        return TransitionBatch({name: column.take(index, axis=0) for name, column in self._columns.items()})

    def own_memory(self) -> TransitionBatch:
        """Return a batch in which no column is a view of another array."""
        columns = {name: column if column.base is None else column.copy() for name, column in self._columns.items()}
        return TransitionBatch(columns)

    def select(self, names: Iterable[str]) -> TransitionBatch:
        """Return a batch of these columns only, sharing memory."""
        return TransitionBatch({name: self._columns[name] for name in names})

    def with_columns(self, **columns: Column) -> TransitionBatch:
        """Return a batch with these columns added or replaced; the others are shared."""
        return TransitionBatch({**self._columns, **columns})

    def to(self, device: str | torch.device) -> TransitionBatch:
        """Return a batch of tensors on `device`; on the CPU they share memory with the arrays."""
        return TransitionBatch.of_length(self._length, columns_to(device, self._columns))

    def to_list(self) -> list[dict[str, Column]]:
        """Return real dicts, one a row, with DI-engine's keys; of flat keys "obs/a" there is a dict "obs"."""
        return [nest(row) for row in self]

    @classmethod
    def concat(cls, batches: Sequence[TransitionBatch]) -> TransitionBatch:
        """Join batches of one schema into fresh memory; raises SchemaError if they differ."""
        parts = [batch for batch in batches if len(batch)] or list(batches[:1])
        if len(parts) == 1:
            return parts[0]
        for part in parts[1:]:
            parts[0].schema.check(part.columns, where="concat")
        return cls({name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns})


class Row(Mapping[str, Any]):
    """Read-only view of one row of a batch; it also has DI-engine's `done`, `IS` and `collect_iter`.

    The id of a row from a buffer is text, as DI-engine writes it ("buffer_17"); the column holds numbers. Of columns
    "obs/a" and "obs/b" it answers `row["obs"]` with a dict; its names are those of the columns.
    """

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: TransitionBatch, index: int) -> None:
        self._batch = batch
        self._index = index

    def __getitem__(self, key: str) -> Column:
        try:
            value = self._batch[key][self._index]
        except KeyError:
            start = f"{key}/"
            inside = {name[len(start) :]: self[name] for name in self._batch.columns if name.startswith(start)}
            if not inside:
                raise
            return nest(inside)
        if key == ROW_ID and hasattr(self._batch, "buffer_name"):
            return as_text(self._batch.buffer_name, int(value))
        if isinstance(value, np.ndarray):
            value = value.view()
            value.flags.writeable = False
        return value

    def __iter__(self) -> Iterator[str]:
        columns = self._batch.columns
        yield from columns
        for name, (needs, _) in DI_ENGINE_KEYS.items():
            if name not in columns and all(need in columns for need in needs):
                yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"Row({dict(self)})"


class EpisodeBatch(Sequence[TransitionBatch]):
    """Whole episodes end to end: item i is a slice view of one episode, without padding.

    `offsets` [N + 1] are row numbers, first 0, last len(batch), never falling.
    """

    __slots__ = ("batch", "offsets")

    def __init__(self, batch: TransitionBatch, offsets: Array) -> None:
        if len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != len(batch) or (np.diff(offsets) < 0).any():
            raise SchemaError(f"offsets must rise from 0 to {len(batch)}, got {offsets.tolist()}.")
        self.batch = batch
        self.offsets = offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, key: int) -> TransitionBatch: ...
    @overload
    def __getitem__(self, key: slice) -> EpisodeBatch: ...
    def __getitem__(self, key: int | slice) -> Any:
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step != 1:
                raise SchemaError(f"episodes are sliced with step 1, got {step}.")
            stop = max(start, stop)
            first, last = int(self.offsets[start]), int(self.offsets[stop])
            return EpisodeBatch(self.batch[first:last], self.offsets[start : stop + 1] - first)
        if not -len(self) <= key < len(self):
            raise IndexError(f"episode {key} of {len(self)}")
        i = key % len(self)
        return self.batch[int(self.offsets[i]) : int(self.offsets[i + 1])]


class SequenceBatch(Sequence[TransitionBatch]):
    """B windows of T rows: `batch["obs"]` is [B, T, ...], `batch[3]` the T rows of one window, a view.

    Column `mask` [B, T] is False on padding and, where there is a burn-in, in its steps. `initial` holds columns of
    which only the first row of each window is kept, [B, ...]: recurrent state. `per_window` holds what there is once
    for each window, [B, ...], such as its `weight`; `batch["weight"]` finds it too.
    """

    __slots__ = ("_columns", "initial", "num_steps", "per_window")

    def __init__(
        self,
        columns: Mapping[str, Column],
        initial: Mapping[str, Column] | None = None,
        per_window: Mapping[str, Column] | None = None,
    ) -> None:
        self._columns = dict(columns)
        self.initial = dict(initial or {})
        self.per_window = dict(per_window or {})
        shapes = {column.shape[:2] for column in self._columns.values()}
        if len(shapes) != 1:
            raise SchemaError(f"columns of one sequence batch must be equally long and wide, got {sorted(shapes)}.")
        self.num_steps = int(next(iter(shapes))[1])

    @classmethod
    def of_length(
        cls,
        num_steps: int,
        columns: dict[str, Column],
        initial: dict[str, Column],
        per_window: Mapping[str, Column] | None = None,
    ) -> SequenceBatch:
        """Return a batch of columns known to be [B, num_steps, ...], without looking; it keeps the dicts."""
        batch = cls.__new__(cls)
        batch._columns, batch.initial, batch.num_steps = columns, initial, num_steps
        batch.per_window = dict(per_window or {})
        return batch

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    @overload
    def __getitem__(self, key: str) -> Column: ...
    @overload
    def __getitem__(self, key: int) -> TransitionBatch: ...
    @overload
    def __getitem__(self, key: slice) -> SequenceBatch: ...
    def __getitem__(self, key: str | int | slice) -> Any:
        if isinstance(key, str):
            return self._columns[key] if key in self._columns else self.per_window[key]
        if isinstance(key, slice):
            parts = (self._columns, self.initial, self.per_window)
            return SequenceBatch(*({name: column[key] for name, column in part.items()} for part in parts))
        if not -len(self) <= key < len(self):
            raise IndexError(f"window {key} of {len(self)}")
        return TransitionBatch({name: column[key] for name, column in self._columns.items()})

    def __repr__(self) -> str:
        return f"SequenceBatch({len(self)} windows of {self.num_steps} rows: {', '.join(self._columns)})"

    @property
    def columns(self) -> Mapping[str, Column]:
        """Columns by name, to be read only."""
        return self._columns

    def to(self, device: str | torch.device) -> SequenceBatch:
        """Return a batch of tensors on `device`; on the CPU they share memory with the arrays."""
        columns, *rest = (columns_to(device, part) for part in (self._columns, self.initial, self.per_window))
        return SequenceBatch.of_length(self.num_steps, columns, *rest)


def as_text(instance_name: str, number: int) -> str:
    """Return the id of row `number` of the buffer of this name."""
    return f"{instance_name}_{number}"


def number_of(text: str) -> int:
    """Return the number in an id. Raises SchemaError for a text that is none."""
    number = text.rpartition("_")[2]
    if not number.isdecimal():
        raise SchemaError(f"{ROW_ID} is {text!r}, expected a number or a text like 'buffer_17', as samples have it.")
    return int(number)


def as_numbers(ids: Column, instance_name: str) -> Column:
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
