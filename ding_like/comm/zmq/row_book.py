"""Keep the books of the way of rows, without sockets: who is there, what was ordered, what came, what is acknowledged.

Orders of a source are numbered from 1, and so are its segments. Either end takes the next number only, and sends again
what the other has not got: what is lost on the way comes later, what is repeated counts once, and nothing overtakes.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ding_like.comm.channels import Segment, Version
from ding_like.comm.workers.failures import RestartBudget
from ding_like.comm.zmq.frames import Frame, encode
from ding_like.comm.zmq.row_messages import PROTOCOL, Hello, Sender
from ding_like.types import Array

_MAX_SOURCES = 4_096  # names are never forgotten in a run
_HOST_S = 60.0  # a host that has said nothing for so long is gone, and its name may be another's
_KEPT_REFUSALS = 16
_FORGIVEN = 3  # segments of a source that are refused in ten minutes; with the next one it is cut off
_KEPT_ERRORS = 1_000


class Reply(NamedTuple):
    """Hold a message that is to be sent to a route."""

    route: bytes
    frames: list[Frame]


class Arrived(NamedTuple):
    """Hold a segment that came, for an order of `asked` rows (of whole episodes: episodes)."""

    source: str
    run_id: int
    seq: int
    order: int  # as `give` returned it
    asked: int
    segment: Segment
    came_s: float


class SourceState(NamedTuple):
    """Say how a source stands."""

    role: str
    run_id: int
    connected: bool  # as far as is known: whoever was killed without a word is until something is sent there
    heard_s: float  # when it was heard last
    outstanding: tuple[int, ...]  # orders for which nothing has come
    waiting: int  # segments that came and are not acknowledged
    lost_rows: int  # that were ordered of earlier runs of this source, and never handed over
    refused: int = 0  # segments of this source, of all its runs


class ReportedError(NamedTuple):
    """Hold what a source said of its failure."""

    source: str
    role: str
    run_id: int
    text: str


class Counts(NamedTuple):
    """Count what came since the start."""

    segments: int = 0  # that were accepted
    rows: int = 0  # of these
    acknowledged: int = 0  # segments
    duplicates: int = 0  # segments that came again
    early: int = 0  # segments that came before one that was lost, and are sent again
    refused: int = 0  # segments and joins
    garbled: int = 0  # messages that are none
    dropped_rows: int = 0  # that came of a source that was replaced before they were taken


@dataclass
class _Given:
    number: int  # of the source's orders
    rows: int
    frames: list[Frame]


@dataclass
class _Source:
    sender: Sender
    role: str
    route: bytes
    heard_s: float
    is_connected: bool = True
    orders: dict[int, _Given] = field(default_factory=dict)  # by id, those for which nothing came
    num_orders: int = 0
    last_seq: int = 0
    waiting: set[int] = field(default_factory=set)  # seqs that came and are not acknowledged
    refusals: dict[int, str] = field(default_factory=dict)  # the last ones, by seq
    statistics: int = 0  # version of those that it was sent
    lost_rows: int = 0


class RowBook:
    """Hold what the driver's end knows; whoever uses it holds a lock."""

    def __init__(
        self,
        *,
        session: str,
        credit: int,
        max_waiting: int | None,
        clock: Callable[[], float],
        owners: Mapping[str, str],
    ) -> None:
        self._session = session
        self._owners = dict(owners)  # keys of sources by name, which stay
        self._credit = credit
        self._max_waiting = max_waiting
        self._clock = clock
        self._sources: dict[str, _Source] = {}
        self._num_orders = 0
        self._statistics: Mapping[str, Array] = {}
        self._statistics_version = 0
        self._stats: dict[str, dict[str, Any]] = {}
        self._counts: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()  # segments by source
        self._forgiven: dict[str, RestartBudget] = {}
        self._cut_off: dict[str, str] = {}  # why, by source
        self.arrived: deque[Arrived] = deque()
        self._errors: list[ReportedError] = []
        self.num_errors = 0
        self.num_replaced = 0  # sources that came back
        self.is_stopping = False

    # --- joining

    def join(self, hello: Hello, route: bytes, welcome: Mapping[str, Any], key: str) -> Reply:
        """Enter a source with a key, or refuse it; one that came back takes the place of its earlier run."""
        sender, before = hello.sender, self._sources.get(hello.sender.name)
        reason = self._reason_against(hello, before, key)
        if reason:
            self.count("refused")
            return self._reply(route, "refused", run_id=sender.run_id, reason=reason)
        if before is None or before.sender != sender:
            lost_rows = 0 if before is None else self._withdraw(before)
            self._sources[sender.name] = _Source(sender, hello.role, route, self._clock(), lost_rows=lost_rows)
            self.num_replaced += before is not None
        self._owners[sender.name] = key
        source = self._sources[sender.name]
        self._hear(source, route)
        return self._reply(route, "welcome", run_id=sender.run_id, instance=sender.instance, welcome=dict(welcome))

    def _reason_against(self, hello: Hello, before: _Source | None, key: str) -> str:
        sender = hello.sender
        if hello.protocol != PROTOCOL:
            return f"it speaks version {hello.protocol} of the protocol, the run {PROTOCOL}; install its ding-like"
        if self._owners.get(sender.name, key) != key:
            return f"{sender.name} is of another machine, which has another key"
        if sender.name in self._cut_off:
            return self._cut_off[sender.name]
        if before is None:
            return f"the run has {_MAX_SOURCES:,} sources already" if len(self._sources) >= _MAX_SOURCES else ""
        own = before.sender
        if before.role == "host" and own != sender and self._clock() - before.heard_s < _HOST_S:
            return f"{sender.name} has joined already"
        if before.role != hello.role:
            return f"{sender.name} is a {before.role} of this run"
        if sender.run_id < own.run_id or (sender.run_id == own.run_id and sender.instance != own.instance):
            return f"run {own.run_id} of {sender.name} has joined already; start it with a later run id"
        return ""

    def _withdraw(self, source: _Source) -> int:
        """Drop what came of a source and was not taken; return the rows that it never handed over."""
        name = source.sender.name
        dropped = [each for each in self.arrived if each.source == name]
        self.arrived = deque(each for each in self.arrived if each.source != name)
        self.count("dropped_rows", sum(len(each.segment.batch) for each in dropped))
        return source.lost_rows + sum(each.rows for each in source.orders.values())

    def find(self, sender: Sender, route: bytes) -> _Source | None:
        """Return the source that a message is of, which is heard with it.

        None: it has not joined, was replaced, or is cut off.
        """
        source = self._sources.get(sender.name)
        if source is None or source.sender != sender or sender.name in self._cut_off:
            return None
        self._hear(source, route)
        return source

    def unknown(self, sender: Sender, route: bytes) -> Reply:
        """Return what a source is told that `find` does not return: to say hello, or why it has no place."""
        own = self._sources.get(sender.name)
        if own is None:
            return self._reply(route, "unknown")
        replaced = f"run {own.sender.run_id} of {sender.name} has taken its place"
        reason = self._cut_off.get(sender.name, replaced)
        return self._reply(route, "refused", run_id=sender.run_id, reason=reason)

    def _hear(self, source: _Source, route: bytes) -> None:
        source.route, source.heard_s, source.is_connected = route, self._clock(), True

    def note_unreachable(self, route: bytes) -> None:
        """Take note that nothing can be sent to a route: it is silent until it is heard again."""
        for source in self._sources.values():
            if source.route == route:
                source.is_connected = False

    # --- orders

    def give(
        self,
        name: str,
        rows: int,
        *,
        env_step: int,
        newest: Version | None,
        extra: Mapping[str, Any],
    ) -> tuple[int, Reply] | None:
        """Return the id of a new order and its message, None if the source cannot have one now."""
        source = self._sources.get(name)
        if source is None or name in self._cut_off or self.is_stopping:
            return None
        if len(source.orders) + len(source.waiting) >= self._credit:
            return None
        if self._max_waiting is not None and self.num_open >= self._max_waiting:
            return None
        has_news = source.statistics < self._statistics_version
        reply = self._reply(
            source.route,
            "order",
            self._statistics if has_news else {},
            number=source.num_orders + 1,
            id=self._num_orders + 1,
            rows=rows,
            env_step=env_step,
            newest=None if newest is None else list(newest),
            extra=dict(extra),
            has_statistics=has_news,
        )
        source.statistics = self._statistics_version
        source.num_orders += 1
        self._num_orders += 1
        source.orders[self._num_orders] = _Given(source.num_orders, rows, reply.frames)
        return self._num_orders, reply

    def use_statistics(self, arrays: Mapping[str, Array]) -> None:
        """Send copies of these arrays with the next order of each source."""
        self._statistics = {name: array.copy() for name, array in arrays.items()}
        self._statistics_version += 1

    def asked(self, source: _Source, have: int, waiting: Sequence[int]) -> list[Reply]:
        """Return what a source has not got: orders after number `have`, what became of the segments `waiting`.

        Where there is nothing new it is told that somebody is here.
        """
        settled = [seq for seq in waiting if seq <= source.last_seq and seq not in source.waiting]
        missing = [self._settled(source, seq) for seq in settled]
        if self.is_stopping:
            return [*missing, self._reply(source.route, "stop")]
        missing += [Reply(source.route, given.frames) for given in source.orders.values() if given.number > have]
        return missing or [self._reply(source.route, "here")]

    def stop_all(self) -> list[Reply]:
        """Give no orders any more; return what all are told."""
        self.is_stopping = True
        return [self._reply(source.route, "stop") for source in self._sources.values()]

    # --- segments

    def sort_out(self, source: _Source, seq: int, order: int) -> Reply | None:
        """Return the answer to a segment that is not to be looked at, None for one that is."""
        route = source.route
        if seq > source.last_seq + 1:
            self.count("early")
            return self._reply(route, "here")
        if seq == source.last_seq + 1:
            return None if order in source.orders else self.refuse(source, seq, order, f"order {order} was not given")
        self.count("duplicates")
        return self._reply(route, "came", seq=seq) if seq in source.waiting else self._settled(source, seq)

    def _settled(self, source: _Source, seq: int) -> Reply:
        """Return what became of a segment that came and is not waiting."""
        if seq in source.refusals:
            return self._reply(source.route, "refused", seq=seq, reason=source.refusals[seq])
        return self._reply(source.route, "ack", seq=seq)

    def accept(self, source: _Source, seq: int, order: int, segment: Segment) -> Reply:
        """Take a segment in, which waits to be taken and acknowledged."""
        asked = source.orders.pop(order).rows
        source.last_seq = seq
        source.waiting.add(seq)
        sender = source.sender
        self.arrived.append(Arrived(sender.name, sender.run_id, seq, order, asked, segment, self._clock()))
        self.count("segments")
        self.count("rows", len(segment.batch))
        return self._reply(source.route, "came", seq=seq)

    def refuse(self, source: _Source, seq: int, order: int, reason: str) -> Reply:
        """Drop a segment, for good."""
        source.orders.pop(order, None)
        source.last_seq = seq
        source.refusals[seq] = reason
        while len(source.refusals) > _KEPT_REFUSALS:
            source.refusals.pop(next(iter(source.refusals)))
        self.count("refused")
        name = source.sender.name
        self._refused[name] += 1
        if not self._forgiven.setdefault(name, RestartBudget(_FORGIVEN, clock=self._clock)).spend():
            self._cut(source, reason)
        return self._reply(source.route, "refused", seq=seq, reason=reason)

    def _cut(self, source: _Source, reason: str) -> None:
        """Have no more to do with a source for the rest of the run: it has left, and cannot join again."""
        name = source.sender.name
        refused = f"{_FORGIVEN + 1} segments of it were refused within ten minutes"
        self._cut_off[name] = f"it is cut off: {refused}, the last one as {reason}"
        source.orders.clear()
        source.is_connected = False
        self.note_error(source, self._cut_off[name])

    def take_arrived(self) -> list[Arrived]:
        """Return what came since this was called last, in the order in which it did."""
        arrived, self.arrived = list(self.arrived), deque()
        return arrived

    def acknowledge(self, arrived: Arrived) -> Reply | None:
        """Take note that rows are where they are kept; return what their source is told, if it is still there."""
        self.count("acknowledged")
        source = self._sources[arrived.source]
        if source.sender.run_id != arrived.run_id:
            return None
        source.waiting.discard(arrived.seq)
        return self._reply(source.route, "ack", seq=arrived.seq)

    # --- what is said beside

    def note_stats(self, source: _Source, plain: dict[str, Any]) -> None:
        """Keep the newest numbers of a source."""
        self._stats[source.sender.name] = plain

    def note_error(self, source: _Source, text: str) -> Reply:
        """Keep what a source says of its failure; return that it is noted."""
        self._errors.append(ReportedError(source.sender.name, source.role, source.sender.run_id, text))
        del self._errors[:-_KEPT_ERRORS]
        self.num_errors += 1
        return self._reply(source.route, "noted")

    def take_errors(self) -> list[ReportedError]:
        """Return what was said of failures since, each once."""
        errors, self._errors = self._errors, []
        return errors

    def stats(self, name: str) -> dict[str, Any]:
        """Return the newest numbers of a source, empty where there are none."""
        return dict(self._stats.get(name, {}))

    def count(self, what: str, number: int = 1) -> None:
        """Add to the counts."""
        self._counts[what] += number

    @property
    def counts(self) -> Counts:
        """Return the counts."""
        return Counts(**self._counts)

    @property
    def num_waiting(self) -> int:
        """Return the segments that came and are not acknowledged."""
        return sum(len(source.waiting) for source in self._sources.values())

    def open_rows(self, names: Sequence[str]) -> int:
        """Return the rows that these sources were ordered, and for which nothing came."""
        sources = [self._sources[name] for name in names if name in self._sources]
        return sum(given.rows for source in sources for given in source.orders.values())

    @property
    def num_open(self) -> int:
        """Return the orders for which nothing came, and the segments that are not acknowledged."""
        return self.num_waiting + sum(len(source.orders) for source in self._sources.values())

    def states(self) -> dict[str, SourceState]:
        """Return how all sources stand, by name."""
        return {
            name: SourceState(
                source.role,
                source.sender.run_id,
                source.is_connected,
                source.heard_s,
                tuple(source.orders),
                len(source.waiting),
                source.lost_rows,
                self._refused[name],
            )
            for name, source in self._sources.items()
        }

    def _reply(self, route: bytes, kind: str, arrays: Mapping[str, Array] | None = None, /, **fields: Any) -> Reply:
        return Reply(route, encode({"kind": kind, "session": self._session, **fields}, arrays))
