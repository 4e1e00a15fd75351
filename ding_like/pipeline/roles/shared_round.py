"""Have the rows of one round brought by several actors, who come and go meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ding_like.comm.zmq.row_server import Arrived, SourceState


class _Told(NamedTuple):
    run_id: int  # of the actor that has the order
    order: int


class SharedRound:
    """Give each actor its share of a round, of `asked` rows, and sort what arrives by their places.

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
        self._told: dict[str, _Told] = {}
        self._came: dict[str, Arrived] = {}
        self._late: list[Arrived] = []  # of a round that the actor had left, as it seemed

    def order(self, sources: Mapping[str, SourceState]) -> list[str]:
        """Give orders to those who have none, leave out those who have left; return whose share is still to come."""
        for name in self._missing:
            source, told = sources[name], self._told.get(name)
            if self._has_left(name, source):
                del self._asked[name]
            elif source.connected and (told is None or told.run_id != source.run_id):
                order = self._give(name, self._asked[name])
                if order is not None:
                    self._told[name] = _Told(source.run_id, order)
        return self._missing

    @property
    def _missing(self) -> list[str]:
        return [name for name in self._asked if name not in self._came]

    def take(self, arrived: Iterable[Arrived]) -> None:
        """Take what has arrived; rows of an earlier round are as good as any."""
        for each in arrived:
            told = self._told.get(each.source)
            if each.source in self._asked and told is not None and told.order == each.order:
                self._came[each.source] = each
            else:
                self._late.append(each)

    @property
    def came(self) -> list[Arrived]:
        """Return what came, by place, and after it what came late."""
        return [*(self._came[name] for name in self._asked if name in self._came), *self._late]
