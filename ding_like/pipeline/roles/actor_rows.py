"""Rows of actors: a round that several of them share, and checks of what they send."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gymnasium import Space

from ding_like.comm.channels import Segment
from ding_like.comm.rest.rows import RowCheck
from ding_like.comm.zmq.row_server import Arrived, SourceState
from ding_like.data.batch import TransitionBatch
from ding_like.errors import SchemaError
from ding_like.pipeline.statistics import MergedStatistics

_MEANS = ("return", "length")  # of recent episodes: numbers, None before the first has ended
_LARGEST = 2.0**53
# Env steps that a step in a row may have taken: those of episodes that were dropped count too.
_STEPS_FOR_ONE, _STEPS_BESIDE = 1_000, 100_000


class SegmentCheck:
    """Refuse segments that no actor of this run sends.

    Their rows are as the envs' spaces say (`RowCheck`), and have the columns of the first segment that passes; what the
    envs' wrappers observed is of `statistics`' wrappers; the numbers beside them are finite.
    """

    def __init__(
        self,
        observation_space: Space[Any],  # Any, twice: a space is generic in what it samples
        action_space: Space[Any],
        statistics: MergedStatistics | None = None,
    ) -> None:
        self._spaces = observation_space, action_space
        self._statistics = statistics
        self._rows: RowCheck | None = None

    def __call__(self, segment: Segment) -> None:
        """Raise SchemaError or SegmentError that says what is wrong with a segment."""
        batch = segment.batch
        assert isinstance(batch, TransitionBatch), "rows that do not stack are not sent"
        rows = self._rows or RowCheck(*self._spaces, batch.schema)
        rows(batch.columns)
        _check_stats(segment.stats)
        steps = max(math.prod(column.shape[:2]) for column in batch.columns.values())
        if segment.env_steps > _STEPS_FOR_ONE * steps + _STEPS_BESIDE:
            raise SchemaError(f"{segment.env_steps:,} env steps for {len(batch):,} rows cannot be.")
        if self._statistics is not None:
            if segment.observed:
                self._statistics.check(segment.observed)
        elif segment.observed:
            raise SchemaError(f"the run has no env.wrappers that observe, and got {sorted(segment.observed)[:5]}.")
        self._rows = rows


def _check_stats(stats: Mapping[str, Any]) -> None:  # Any: of JSON
    for name, value in stats.items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if name in _MEANS and value is not None and not is_number:
            raise SchemaError(f"the mean {name} of episodes is {value!r:.80}; expected a number.")
        # An int may be too large to become a float.
        if is_number and (not abs(value) < _LARGEST):
            raise SchemaError(f"'{name:.80}' is {value!r:.80}; expected a finite number.")


class SharedRound:
    """Round of `asked` rows that several actors share, sorted by their places.

    `give(actor, rows)` gives an order and returns its number, None where the actor takes none. What an actor was to do
    that is lost, the one that takes its place does; where none will, as `has_left` says, its share is left out.
    """

    def __init__(
        self,
        asked: Mapping[str, int],
        *,
        give: Callable[[str, int], int | None],
        has_left: Callable[[str, SourceState], bool],
    ) -> None:
        self._asked = dict(asked)
        self._give = give
        self._has_left = has_left
        self._told: dict[str, tuple[int, int]] = {}  # (run_id of the actor that has the order, number of the order)
        self._came: dict[str, Arrived] = {}
        self._late: list[Arrived] = []  # of a round that the actor had left, as it seemed

    def order(self, sources: Mapping[str, SourceState]) -> list[str]:
        """Give orders to those who have none, leave out those who have left; return whose share is still to come."""
        for name in self._missing:
            source, told = sources[name], self._told.get(name)
            if self._has_left(name, source):
                del self._asked[name]
            elif source.connected and (told is None or told[0] != source.run_id):
                order = self._give(name, self._asked[name])
                if order is not None:
                    self._told[name] = source.run_id, order
        return self._missing

    @property
    def _missing(self) -> list[str]:
        return [name for name in self._asked if name not in self._came]

    def take(self, arrived: Iterable[Arrived]) -> None:
        """Take what has arrived; rows of an earlier round are as good as any."""
        for each in arrived:
            told = self._told.get(each.source)
            if each.source in self._asked and told is not None and told[1] == each.order:
                self._came[each.source] = each
            else:
                self._late.append(each)

    @property
    def came(self) -> list[Arrived]:
        """Return what came, by place, and after it what came late."""
        return [*(self._came[name] for name in self._asked if name in self._came), *self._late]
