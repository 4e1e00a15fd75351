"""Driver's end of the row channel: one socket, to which all sources send and from which actors get orders.

`row_link` has the messages and the other end.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ding_like.comm.channels import Segment, Version
from ding_like.comm.json_fields import MAX_TEXT, Head, count_of, name_of, plain_of, short, text_of
from ding_like.comm.json_version import version_of
from ding_like.comm.workers.failures import RestartBudget
from ding_like.comm.zmq.frames import Frame, Message, decode, encode
from ding_like.comm.zmq.row_link import MAX_NBYTES, PROTOCOL
from ding_like.comm.zmq.sockets import Poller, Wake, open_socket
from ding_like.data.batch import TransitionBatch
from ding_like.data.schema import Schema
from ding_like.errors import CommError, DingError
from ding_like.types import Array

if TYPE_CHECKING:
    from ding_like.comm.zmq.keys import SeedKeys

_ROLES = ("actor", "server", "host")  # a host is a machine that has joined, beside what works there
_MAX_NAME = 100  # characters
_LOOK_S = 1.0  # the thread is woken for whatever there is to do; this bounds its wait all the same
_AT_A_TIME = 64  # messages that are taken in before answers go out
_QUEUE = 64  # messages from and to each source that wait: few, as a segment may be large
_CLOSE_S = 10.0
_HOST_S = 60.0  # a host without a message for so long is gone, and its name may be another's
_COUNTED = ("segments", "rows", "acknowledged", "duplicates", "early", "refused", "garbled")
_FORGIVEN = 3  # segments of a source that are refused in ten minutes; with the next one it is cut off

_logger = logging.getLogger(__name__)


class Arrived(NamedTuple):
    """Segment that came, for an order of `asked` rows (of whole episodes: episodes)."""

    source: str
    run_id: int
    seq: int
    order: int  # as `give` returned it
    asked: int
    segment: Segment
    came_s: float


class SourceState(NamedTuple):
    """State of a source."""

    role: str
    run_id: int
    connected: bool  # as far as is known: one that was killed is until something is sent there
    heard_s: float  # when its last message came
    outstanding: tuple[int, ...]  # orders for which nothing has come
    refused: int  # segments of this source, of all its runs
    stats: Mapping[str, Any] = {}  # the numbers that it has sent last; Any: of JSON


class ReportedError(NamedTuple):
    """Failure that a source reported."""

    source: str
    text: str


class _Sender(NamedTuple):
    name: str
    run_id: int
    instance: str


class _Order(NamedTuple):
    number: int  # of the source's orders
    rows: int
    frames: list[Frame]


@dataclass(eq=False)
class _Source:
    sender: _Sender
    role: str
    route: bytes
    heard_s: float = 0.0
    is_connected: bool = True
    orders: dict[int, _Order] = field(default_factory=dict)  # by id, those for which nothing came
    num_orders: int = 0
    last_seq: int = 0
    num_unstored: int = 0  # segments that came and are not acknowledged
    statistics: int = 0  # version of those that it was sent
    stats: dict[str, Any] = field(default_factory=dict)

    def hear(self, route: bytes) -> None:
        self.route, self.heard_s, self.is_connected = route, time.monotonic(), True


class RowServer:
    """Server that gives orders to sources and takes in their segments, each once and each source's in order.

    A source has at most `credit` orders and segments that are not acknowledged: rows that are not stored yet take
    bounded memory, and their senders wait. `welcome` is sent to a source when it joins, as plain JSON. `check` raises
    for a segment that is not to be learned from, which is refused; so is one whose columns are not those of the first.

    With `keys`, a source's name is its first owner's: the next run of it must come with the same key, and those of
    `own_names` with the key of this machine's processes. `counts` are of what came: "segments" that were accepted and
    their "rows", those that were "acknowledged", came again ("duplicates") or before one that was lost ("early"), what
    was "refused" (segments and joins), and messages that are none ("garbled"). Raises ConfigError and CommError as
    `open_socket` does.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        keys: SeedKeys | None = None,
        credit: int = 2,
        welcome: Mapping[str, Any] | None = None,
        check: Callable[[Segment], None] | None = None,
        own_names: Collection[str] = (),
    ) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(_COUNTED, 0))
        self._session = secrets.token_hex(8)  # sources send hello again to a driver of another session
        self._credit = credit
        self._welcome = dict(welcome or {})
        self._check = check
        self._schema: Schema | None = None
        self._changed = threading.Condition()  # guards all that follows
        self._owners = dict.fromkeys(own_names, "" if keys is None else keys.own.public)
        self._sources: dict[str, _Source] = {}
        self._num_orders = 0
        self._statistics: Mapping[str, Array] = {}
        self._statistics_version = 0
        self._num_refused: Counter[str] = Counter()  # segments by source
        self._forgiven: dict[str, RestartBudget] = {}
        self._cut_off: dict[str, str] = {}  # why, by source
        self._arrived: list[Arrived] = []
        self._errors: list[ReportedError] = []
        self._has_news = False  # an error, or a source that came back
        self._outbox: deque[list[Frame]] = deque()
        self._is_stopping = self._is_closed = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="row-server", daemon=True)
        self._socket = open_socket("router", bind=endpoint, keys=keys, hwm=_QUEUE, max_frame_nbytes=MAX_NBYTES)
        self._wake = Wake()
        self.endpoint = self._socket.endpoint

    def start(self) -> RowServer:
        """Begin to serve; return this server."""
        self._thread.start()
        return self

    # --- sources

    def sources(self) -> dict[str, SourceState]:
        """Return the states of all sources that have joined, by name. Raises CommError if the server has failed."""
        with self._changed:
            self._raise_failure()
            return {
                name: SourceState(
                    each.role, each.sender.run_id, each.is_connected, each.heard_s, tuple(each.orders),
                    self._num_refused[name], each.stats,
                )
                for name, each in self._sources.items()
            }  # fmt: skip

    def give(
        self,
        source: str,
        rows: int,
        *,
        env_step: int,
        newest: Version | None,
        extra: Mapping[str, Any] | None = None,
    ) -> int | None:
        """Order rows of a source, with `extra` as plain JSON; return the order's id.

        None: the source has not joined, was cut off, or has as many orders as its credit. Raises CommError for an
        `extra` that is no JSON, and if the server has failed.
        """
        with self._changed:
            self._raise_failure()
            found = self._sources.get(source)
            if found is None or source in self._cut_off or self._is_stopping:
                return None
            if len(found.orders) + found.num_unstored >= self._credit:
                return None
            has_news = found.statistics < self._statistics_version
            head = {
                "number": found.num_orders + 1, "id": self._num_orders + 1, "rows": rows, "env_step": env_step,
                "newest": None if newest is None else list(newest), "extra": dict(extra or {}),
                "has_statistics": has_news,
            }  # fmt: skip
            frames = self._send(found.route, "order", self._statistics if has_news else None, **head)
            found.statistics = self._statistics_version
            found.num_orders += 1
            self._num_orders += 1
            found.orders[self._num_orders] = _Order(found.num_orders, rows, frames)
            return self._num_orders

    def open_rows(self, sources: Sequence[str]) -> int:
        """Return the rows that these sources were ordered and have not handed over."""
        with self._changed:
            found = [self._sources[name] for name in sources if name in self._sources]
            return sum(order.rows for each in found for order in each.orders.values())

    def use_statistics(self, arrays: Mapping[str, Array]) -> None:
        """Send copies of arrays, by which the envs' wrappers normalise, with the next order to each source."""
        with self._changed:
            self._statistics = {name: array.copy() for name, array in arrays.items()}
            self._statistics_version += 1

    # --- rows

    def take(self, timeout_s: float) -> list[Arrived]:
        """Return the segments that came since, in the order in which they did; wait for at most `timeout_s`.

        It returns at once, empty perhaps, when a source has reported an error or came back in place of an earlier run.
        Raises CommError if the server has failed.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._arrived or self._has_news or self._failure is not None or self._is_closed, timeout_s
            )
            self._raise_failure()
            self._has_news = False
            arrived, self._arrived = self._arrived, []
            return arrived

    def acknowledge(self, arrived: Arrived) -> None:
        """Record that the rows of a segment are stored: its source may have another order."""
        with self._changed:
            self.counts["acknowledged"] += 1
            source = self._sources[arrived.source]
            if source.sender.run_id == arrived.run_id:
                source.num_unstored -= 1

    @property
    def queue_depth(self) -> int:
        """The number of segments that came and are not acknowledged."""
        with self._changed:
            return sum(each.num_unstored for each in self._sources.values())

    def errors(self) -> list[ReportedError]:
        """Return the failures that sources have reported since, each once."""
        with self._changed:
            errors, self._errors = self._errors, []
            return errors

    def stop_all(self) -> None:
        """Send all sources, and those that join later, that nothing is needed any more."""
        with self._changed:
            self._is_stopping = True
            for source in self._sources.values():
                self._send(source.route, "stop")

    def close(self) -> None:
        """End the thread and close the socket; what has not been sent is dropped. May be called again."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._wake.wake()
        if self._thread.ident is not None:
            self._thread.join(_CLOSE_S)
        self._socket.close()
        self._wake.close()

    def _send(
        self, route: bytes, kind: str, arrays: Mapping[str, Array] | None = None, /, **fields: Any
    ) -> list[Frame]:
        """Have the thread send a message, and return its frames; the lock is held."""
        frames = [route, *encode({"kind": kind, "session": self._session, **fields}, arrays)]
        self._outbox.append(frames)
        self._wake.wake()
        return frames

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise CommError(f"the row channel has failed: {self._failure}") from self._failure

    # --- the thread's side

    def _run(self) -> None:
        poller = Poller(self._socket, self._wake)
        try:
            while not self._is_closed:
                self._send_outbox()
                poller.wait(_LOOK_S)
                for _ in range(_AT_A_TIME):
                    if (came := self._socket.receive_from()) is None:
                        break
                    self._take_in(*came)
        except BaseException as error:  # any error of this thread is raised in the driver's
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _send_outbox(self) -> None:
        while self._outbox:
            frames = self._outbox.popleft()
            # A source asks for what was not taken, once it can be reached again.
            if not self._socket.send(frames):
                with self._changed:
                    for source in self._sources.values():
                        source.is_connected &= source.route != frames[0]

    def _take_in(self, frames: Sequence[Frame], key: str) -> None:
        route = bytes(frames[0])
        try:
            message = decode(frames[1:], max_nbytes=MAX_NBYTES)
            sender = _sender_of(message.head)
            with self._changed:
                if message.kind == "hello":
                    self._join(message.head, sender, route, key)
                else:
                    self._answer(message, sender, route)
                self._changed.notify_all()
        except CommError as error:
            self.counts["garbled"] += 1
            if self.counts["garbled"] == 1:  # a sender of more of them is not to fill the disk
                _logger.warning("a message to the driver is dropped, as others like it will be: %s", error)

    def _join(self, head: Head, sender: _Sender, route: bytes, key: str) -> None:
        """Enter a source, or refuse it; one that came back takes the place of its earlier run."""
        if head.get("role") not in _ROLES:
            raise CommError(f"the role of a source is {short(head.get('role'))}; expected one of {', '.join(_ROLES)}.")
        before = self._sources.get(sender.name)
        reason = self._reason_against(sender, head["role"], count_of(head, "protocol"), key)
        if reason:
            self.counts["refused"] += 1
            self._send(route, "refused", run_id=sender.run_id, reason=reason)
            return
        if before is None or before.sender != sender:
            self._sources[sender.name] = _Source(sender, head["role"], route)
            self._has_news |= before is not None
        self._owners[sender.name] = key
        self._sources[sender.name].hear(route)
        self._send(route, "welcome", run_id=sender.run_id, instance=sender.instance, welcome=self._welcome)
        if self._is_stopping:
            self._send(route, "stop")

    def _reason_against(self, sender: _Sender, role: str, protocol: int, key: str) -> str:
        """Return why a source may not join, "" for one that may."""
        name, before = sender.name, self._sources.get(sender.name)
        if protocol != PROTOCOL:
            return f"it speaks version {protocol} of the protocol, the run {PROTOCOL}; install its ding-like"
        if self._owners.get(name, key) != key:
            return f"{name} is of another machine, which has another key"
        if name in self._cut_off:
            return self._cut_off[name]
        if before is None:
            return ""
        own = before.sender
        if before.role == "host" and own != sender and time.monotonic() - before.heard_s < _HOST_S:
            return f"{name} has joined already"
        if before.role != role:
            return f"{name} is a {before.role} of this run"
        if sender.run_id < own.run_id or (sender.run_id == own.run_id and sender.instance != own.instance):
            return f"run {own.run_id} of {name} has joined already; start it with a later run id"
        return ""

    def _answer(self, message: Message, sender: _Sender, route: bytes) -> None:
        head, kind, source = message.head, message.kind, self._sources.get(sender.name)
        if source is None:
            self._send(route, "unknown")
            return
        if source.sender != sender or sender.name in self._cut_off:
            replaced = f"run {source.sender.run_id} of {sender.name} has taken its place"
            reason = self._cut_off.get(sender.name, replaced)
            self._send(route, "refused", run_id=sender.run_id, reason=reason)
            return
        source.hear(route)
        if kind == "ask":
            self._answer_ask(source, count_of(head, "have"))
        elif kind == "stats":
            source.stats = plain_of(head, "stats")
        elif kind == "error":
            self._note_error(sender.name, text_of(head, "text"))
            self._send(route, "noted")
        elif kind == "segment":
            self._take_segment(source, message)
        else:
            raise CommError(f"a message of kind {kind[:80]!r} is none that the driver takes.")

    def _answer_ask(self, source: _Source, have: int) -> None:
        """Send the orders after number `have`, or that nothing is needed; where there are none, a sign of life."""
        missing = [[source.route, *order.frames[1:]] for order in source.orders.values() if order.number > have]
        if self._is_stopping or not missing:
            self._send(source.route, "stop" if self._is_stopping else "here")
        else:
            self._outbox.extend(missing)
            self._wake.wake()

    def _take_segment(self, source: _Source, message: Message) -> None:
        """Take in a segment that is the next of its source."""
        name, seq, order = source.sender.name, count_of(message.head, "seq"), count_of(message.head, "order")
        if seq > source.last_seq + 1:
            self.counts["early"] += 1
            self._send(source.route, "here")
            return
        if seq <= source.last_seq:
            self.counts["duplicates"] += 1
            self._send(source.route, "ack", seq=seq)
            return
        source.last_seq = seq
        given = source.orders.pop(order, None)
        try:
            if given is None:
                raise CommError(f"order {order} was not given")
            segment = self._segment_of(message)
        except (DingError, ValueError, TypeError, OverflowError) as error:  # of numbers that no check foresaw
            self._refuse(source, seq, str(error)[:MAX_TEXT])
            return
        source.num_unstored += 1
        arrived = Arrived(name, source.sender.run_id, seq, order, given.rows, segment, time.monotonic())
        self._arrived.append(arrived)
        self.counts.update(segments=1, rows=len(segment.batch))
        self._send(source.route, "ack", seq=seq)

    def _segment_of(self, message: Message) -> Segment:
        """Return the segment that a message holds, in memory of its own. Raises CommError or SchemaError."""
        head, parts = message.head, {"columns": {}, "observed": {}}  # type: Head, dict[str, dict[str, Array]]
        for key, array in message.arrays.items():
            part, _, name = key.partition("/")
            if part not in parts or not name:
                raise CommError(f"a segment has the array {short(key)}; expected it in one of {', '.join(parts)}.")
            parts[part][name] = array.copy()  # policies make tensors of it, and what came is read-only
        columns, rows = parts["columns"], count_of(head, "rows")
        if rows < 1 or not columns or any(column.ndim < 1 or len(column) != rows for column in columns.values()):
            shapes = short({name: column.shape for name, column in columns.items()})
            raise CommError(f"a segment of {rows:,} rows has columns of shapes {shapes}; expected [B, ...], B >= 1.")
        batch, stats = TransitionBatch(columns), plain_of(head, "stats")
        version = version_of(head, "version")
        segment = Segment(batch, version, count_of(head, "env_steps"), stats, parts["observed"])
        if self._check is not None:
            self._check(segment)
        self._schema = self._schema or batch.schema
        self._schema.check(columns, where="the run")
        return segment

    def _refuse(self, source: _Source, seq: int, reason: str) -> None:
        """Drop a segment for good; cut its source off for the rest of the run where that happens too often."""
        name = source.sender.name
        self.counts["refused"] += 1
        self._num_refused[name] += 1
        self._note_error(name, f"segment {seq} of it was refused: {reason}")
        if not self._forgiven.setdefault(name, RestartBudget(_FORGIVEN)).spend():
            refused = f"{_FORGIVEN + 1} segments of it were refused within ten minutes"
            self._cut_off[name] = f"it is cut off: {refused}, the last one as {reason}"
            source.orders.clear()
            source.is_connected = False
            self._note_error(name, self._cut_off[name])
        self._send(source.route, "refused", seq=seq, reason=reason)

    def _note_error(self, name: str, text: str) -> None:
        self._errors.append(ReportedError(name, text))
        self._has_news = True


def _sender_of(head: Head) -> _Sender:
    name, instance = (name_of(head, key, most=_MAX_NAME) for key in ("name", "instance"))
    return _Sender(name, count_of(head, "run_id"), instance)
