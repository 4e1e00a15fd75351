"""Hold windows of equal length: columns [B, T, ...] inside, a sequence of sequences of mappings outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from ding_like.data.batch import Column, TransitionBatch, columns_to
from ding_like.errors import SchemaError

if TYPE_CHECKING:
    import torch


class SequenceBatch(Sequence[TransitionBatch]):
    """Hold B windows of T rows: `batch["obs"]` is [B, T, ...], `batch[3]` the T rows of one window, a view.

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
        """Return the columns by name; read them, do not write into them."""
        return self._columns

    def to(self, device: str | torch.device) -> SequenceBatch:
        """Return a batch of tensors on `device`; on the CPU they share memory with the arrays."""
        columns, *rest = (columns_to(device, part) for part in (self._columns, self.initial, self.per_window))
        return SequenceBatch.of_length(self.num_steps, columns, *rest)
