"""Say what came of a turn; what takes time to find out is found out when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ding_like.worker import BaseLearner


class TurnInfo(Mapping[str, Any]):  # Any: numbers, in nested mappings
    """Hold what is known of a turn, and `learned`, what the learner logged of late: read when it is first asked for."""

    def __init__(self, known: Mapping[str, Any], learned: Callable[[], Mapping[str, float]]) -> None:
        self._known = known
        self._learned = learned
        self._all: dict[str, Any] | None = None

    def _found(self) -> dict[str, Any]:
        if self._all is None:
            self._all = {**self._learned(), **self._known}
        return self._all

    def __getitem__(self, name: str) -> Any:
        return self._known[name] if name in self._known else self._found()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found())

    def __len__(self) -> int:
        return len(self._found())

    def __repr__(self) -> str:
        return f"TurnInfo({self._found()})"


def turn_info(
    collected: Mapping[str, Any], learner: BaseLearner, num_updates: int, measures: Mapping[str, float]
) -> TurnInfo:
    """Return what is said of a turn: of what was collected, of so many updates, and of how old things were."""
    versions = {**collected.get("ActorVersion", {}), "ActorUpdate": learner.train_iter}
    known = {**collected, **measures, "Updates": num_updates, "ActorVersion": versions}
    return TurnInfo(known, dict if learner.monitor is None else learner.monitor.averages)
