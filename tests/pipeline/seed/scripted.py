"""A way of rows whose actors do what a test says, on a clock that only waiting moves: no sockets, no threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ding_like.comm.channels import Segment, Version, Weights
from ding_like.comm.workers.failures import FailureLog
from ding_like.comm.workers.processes import Slot
from ding_like.comm.zmq.rows import Arrived, Source
from ding_like.data.batch import TransitionBatch
from tests.support import Clock


class ScriptedRows:
    """Stand-in for a RowServer: actors answer orders at `bring`, or at once where they are `eager`."""

    def __init__(self, clock: Clock, *actors: str, credit: int = 2, eager: bool = True) -> None:
        self._clock = clock
        self._credit = credit
        self.eager = eager
        self.states = {name: Source(name, "actor", 1, heard_s=clock.now) for name in actors}
        self.given: list[tuple[str, int, int, Version | None, dict[str, Any]]] = []
        self.orders: dict[int, tuple[str, int]] = {}  # without an answer: (actor, rows)
        self.arrived: list[Arrived] = []
        self.acknowledged: list[int] = []
        self.numbers: dict[str, dict[str, Any]] = {}
        self.reported: list[tuple[str, str]] = []
        self.statistics: list[dict[str, Any]] = []
        self.version = Version(1, 0)  # that acts
        self.observed: dict[str, Any] = {}
        self.brought = 0
        self.before_take: Callable[[], None] = lambda: None
        self._taken: list[str] = []  # actors whose segments were taken, and are not acknowledged

    def sources(self) -> dict[str, Source]:
        out: Any = {name: {k: each for k, each in self.orders.items() if each[0] == name} for name in self.states}
        return {
            name: replace(state, orders=out[name], stats=self.numbers.get(name, {}))
            for name, state in self.states.items()
        }

    def give(self, source: str, rows: int, *, env_step: int, newest: Any, extra: Any = None) -> Any:
        state = self.sources()[source]
        unacknowledged = sum(each.source == source for each in self.arrived) + self._taken.count(source)
        if not state.connected or len(state.orders) + unacknowledged >= self._credit:
            return None
        number = len(self.given)
        self.given.append((source, rows, env_step, newest, dict(extra)))
        self.orders[number] = source, rows
        if self.eager:
            self.bring(number)
        return state.run_id, number

    def bring(self, number: int) -> None:
        """Have the actor answer an order, with rows that say who made them."""
        source, asked = self.orders.pop(number)
        segment = Segment(
            rows_of(asked, int(source.removeprefix("actor"))), self.version, asked, {"eps": 0.5}, self.observed
        )
        self.arrived.append(Arrived(source, self.states[source].run_id, number, asked, segment, self._clock.now))
        self.brought += asked

    def replace(self, source: str) -> None:
        """Have an actor come back without what it was to do."""
        self.orders = {number: each for number, each in self.orders.items() if each[0] != source}
        self.states[source] = replace(self.states[source], run_id=self.states[source].run_id + 1)

    def take(self, timeout_s: float) -> list[Arrived]:
        self.before_take()
        if not self.arrived:
            self._clock.now += timeout_s
        came, self.arrived = self.arrived, []
        self._taken += [each.source for each in came]
        return came

    def acknowledge(self, arrived: Arrived) -> None:
        self.acknowledged.append(arrived.number)
        self._taken.remove(arrived.source)

    def errors(self) -> list[tuple[str, str]]:
        found, self.reported = self.reported, []
        return found

    def use_statistics(self, arrays: Any) -> None:
        self.statistics.append(dict(arrays))

    queue_depth = 3


class Published:
    """Stand-in for a Broadcaster, on a clock."""

    def __init__(self, clock: Clock, period: float) -> None:
        self.versions: list[Version] = []
        self._clock, self._period_s, self._published_s = clock, period, -float("inf")

    @property
    def is_due(self) -> bool:
        return self._clock.now - self._published_s >= self._period_s

    def publish(self, weights: Weights) -> bool:
        self.versions.append(weights.version)
        self._published_s = self._clock.now
        return True

    def close(self) -> None: ...


class Workers:
    """Stand-in for the processes of a run; `lost` is why they cannot go on, `strangers` are other machines' actors."""

    lost: Exception | None = None
    strangers: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.log = FailureLog()
        self.slots: list[tuple[Slot, int | None]] = []

    def members(self) -> list[tuple[Slot, int | None]]:
        return self.slots

    def is_expected(self, source: str) -> bool:
        return source not in self.strangers

    def check(self) -> None:
        if self.lost is not None:
            raise self.lost

    def describe(self) -> dict[str, str]:
        return {"failures": "none lost"}


def rows_of(number: int, actor: int) -> TransitionBatch:
    rng = np.random.default_rng(actor)
    return TransitionBatch(
        {
            "obs": rng.standard_normal((number, 4), dtype=np.float32),
            "action": rng.integers(2, size=number),
            "reward": np.full(number, actor, np.float32),
            "next_obs": rng.standard_normal((number, 4), dtype=np.float32),
            "terminated": np.zeros(number, bool),
            "truncated": np.zeros(number, bool),
            "discount": np.full(number, 0.9, np.float32),
        }
    )
