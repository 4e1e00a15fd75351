"""Check the rows of a segment before they are learned from: their writer may be broken, or a stranger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium import Space, spaces

from ding_like.data.schema import Schema
from ding_like.data.segment_file import SegmentError
from ding_like.errors import SchemaError
from ding_like.types import Array

_OBS = ("obs", "next_obs")
# A gradient is a product of two numbers of a row, and its norm squares it: the fourth power is finite in float32.
_LARGEST = 4e9


class RowCheck:
    """Check for rows that no env of these spaces gives: other shapes, actions out of range, numbers no loss can take.

    Those are NaN, infinity and what is beyond 4e9, whose losses or gradients overflow. `schema` says which columns
    there are, and of what shape: where rows are sequences, [T, ...]. Without it rows are single steps, and the columns
    of the first segment that passes are those of all that follow.
    """

    def __init__(self, observation_space: Space[Any], action_space: Space[Any], schema: Schema | None = None) -> None:
        leaves = observation_space.spaces if isinstance(observation_space, spaces.Dict) else {"": observation_space}
        self._shapes: dict[str, tuple[int, ...]] = {
            f"{prefix}/{key}" if key else prefix: tuple(space.shape or ())
            for prefix in _OBS
            for key, space in leaves.items()
        }
        self._action_space = action_space
        self.schema = schema

    def __call__(self, columns: Mapping[str, Array]) -> None:
        """Raise SegmentError for columns [B, ...] or [B, T, ...] that are not to be learned from."""
        if self.schema is not None:
            self._check_schema(self.schema, columns)
        for name, column in columns.items():
            expected = self._shapes.get(name)
            if expected is not None and not self._is_of(column, expected):
                raise SegmentError("schema", f"column {name} has rows {column.shape[1:]}, the envs give {expected}")
            if column.size and (column.dtype.kind == "f" or expected is not None):
                self._check_size(name, column)
        if "action" in columns:
            self._check_action(columns["action"])
        if self.schema is None:
            self.schema = Schema.of(columns)

    @staticmethod
    def _check_size(name: str, column: Array) -> None:
        low, high = float(column.min()), float(column.max())
        if not (-_LARGEST <= low and high <= _LARGEST):
            raise SegmentError(
                "schema",
                f"column {name} has numbers that are not finite in a loss: from {low:g} to {high:g}, expected within "
                f"{_LARGEST:g} of 0; scale them in the env (env.wrappers)",
            )

    @staticmethod
    def _check_schema(schema: Schema, columns: Mapping[str, Array]) -> None:
        if any(column.ndim < 1 for column in columns.values()):
            raise SegmentError("schema", "a column has no rows: it is a single number")
        try:
            schema.check(columns, where="the learner's mirror")
        except SchemaError as error:
            raise SegmentError("schema", str(error)[:1000]) from error

    def _check_action(self, action: Array) -> None:
        space = self._action_space
        if not self._is_of(action, tuple(space.shape or ())):
            raise SegmentError("schema", f"column action has rows {action.shape[1:]}, the envs take {space.shape}")
        if not isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)) or not len(action):
            return
        limit = space.n if isinstance(space, spaces.Discrete) else space.nvec
        if action.dtype.kind not in "iu" or bool((action < 0).any()) or bool((action >= limit).any()):
            raise SegmentError("schema", f"column action has numbers that {space} does not have")

    def _is_of(self, column: Array, step: tuple[int, ...]) -> bool:
        """Tell whether each row of a column has the shape of a step or, as the schema has it, is a sequence of some."""
        row = column.shape[1:]
        return row == step or (self.schema is not None and len(row) == len(step) + 1 and row[1:] == step)
