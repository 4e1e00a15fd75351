"""Be the driver's end of the way of rows: one socket, to which all actors send and from which they get orders.

Orders of a source are numbered from 1, and so are its segments. Either end takes the next number only, and sends again
what the other has not got: what is lost on the way comes later, what is repeated counts once, and nothing overtakes.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ding_like.comm.channels import Segment, Version
from ding_like.comm.json_fields import MAX_TEXT, count_of, plain_of, text_of
from ding_like.comm.workers.failures import RestartBudget
from ding_like.comm.zmq.frames import Frame, Message, decode, encode
from ding_like.comm.zmq.row_messages import (
    MAX_NBYTES,
    PROTOCOL,
    Hello,
    RowSchema,
    Sender,
    hello_of,
    segment_of,
    sender_of,
)
from ding_like.comm.zmq.sockets import Poller, Wake, open_socket
from ding_like.errors import CommError, DingError
from ding_like.types import Array

if TYPE_CHECKING:
    from ding_like.comm.zmq.keys import SeedKeys

_LOOK_S = 1.0  # the thread is woken for whatever there is to do; this bounds its wait all the same
_AT_A_TIME = 64  # messages that are taken in before answers go out
_QUEUE = 64  # messages from and to each source that wait: few, as a segment may be large
_CLOSE_S = 10.0
_MAX_SOURCES = 4_096  # names are never forgotten in a run
_HOST_S = 60.0  # a host that has said nothing for so long is gone, and its name may be another's
_FORGIVEN = 3  # segments of a source that are refused in ten minutes; with the next one it is cut off
_KEPT_ERRORS = 1_000

_logger = logging.getLogger(__name__)


class Arrived(NamedTuple):
    """A segment that came, for an order of `asked` rows (of whole episodes: episodes)."""

    source: str
    run_id: int
    seq: int
    order: int  # as `give` returned it
    asked: int
    segment: Segment
    came_s: float


class SourceState(NamedTuple):
    """The state of a source."""

    role: str
    run_id: int
    connected: bool  # as far as is known: one that was killed is until something is sent there
    heard_s: float  # when it was heard last
    outstanding: tuple[int, ...]  # orders for which nothing has come
    refused: int  # segments of this source, of all its runs


class ReportedError(NamedTuple):
    """The failure that a source reported."""

    source: str
    text: str


class Counts(NamedTuple):
    """Counts of what came since the start."""

    segments: int = 0  # that were accepted
    rows: int = 0  # of these
    acknowledged: int = 0  # segments whose rows were stored
    duplicates: int = 0  # segments that came again
    early: int = 0  # segments that came before one that was lost, and are sent again
    refused: int = 0  # segments and joins
    garbled: int = 0  # messages that are none


class _Order(NamedTuple):
    number: int  # of the source's orders
    rows: int
    frames: list[Frame]


@dataclass(eq=False)
class _Source:
    sender: Sender
    role: str
    route: bytes
    heard_s: float
    is_connected: bool = True
    orders: dict[int, _Order] = field(default_factory=dict)  # by id, those for which nothing came
    num_orders: int = 0
    last_seq: int = 0
    num_unstored: int = 0  # segments that came and are not acknowledged
    statistics: int = 0  # version of those that it was sent

    def state(self, refused: int) -> SourceState:
        run_id = self.sender.run_id
        return SourceState(self.role, run_id, self.is_connected, self.heard_s, tuple(self.orders), refused)

    def hear(self, route: bytes) -> None:
        self.route, self.heard_s, self.is_connected = route, time.monotonic(), True


class RowServer:
    """Server that gives orders to sources and takes in their segments, each once and each source's in order.

    A source has at most `credit` orders and segments that are not acknowledged: rows that are not stored yet take
    bounded memory, and their senders wait. `welcome` returns what a source is sent when it joins, as plain JSON; None:
    it is not known yet, and the source asks again. `check` raises for a segment that is not to be learned from, which
    is refused; without it all have the columns of the first. Without `copies_rows` the columns of segments are
    read-only, in the memory in which they came: for a buffer that copies what it stores.

    With `keys`, a source's name is its first owner's: the next run of it must come with the same key, and those of
    `own_names` with the key of this machine's processes. Raises ConfigError and CommError as `open_socket` does.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        keys: SeedKeys | None = None,
        credit: int = 2,
        welcome: Callable[[], Mapping[str, Any] | None] = dict,
        check: Callable[[Segment], None] | None = None,
        own_names: Collection[str] = (),
        copies_rows: bool = True,
    ) -> None:
        self.session = secrets.token_hex(8)  # sources say hello again to a driver of another session
        self._credit = credit
        self._welcome = welcome
        self._check = RowSchema() if check is None else check
        self._copies_rows = copies_rows
        self._changed = threading.Condition()  # guards all that follows
        self._owners = dict.fromkeys(own_names, "" if keys is None else keys.own.public)
        self._sources: dict[str, _Source] = {}
        self._num_orders = 0
        self._statistics: Mapping[str, Array] = {}
        self._statistics_version = 0
        self._stats: dict[str, dict[str, Any]] = {}
        self._counts: Counter[str] = Counter()
        self._num_refused: Counter[str] = Counter()  # segments by source
        self._forgiven: dict[str, RestartBudget] = {}
        self._cut_off: dict[str, str] = {}  # why, by source
        self._arrived: list[Arrived] = []
        self._errors: list[ReportedError] = []
        self._has_news = False  # an error, or a source that came back
        self._outbox: list[list[Frame]] = []
        self._is_stopping = self._is_closed = False
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._wake = Wake()
        try:
            self._socket = open_socket("router", bind=endpoint, keys=keys, hwm=_QUEUE, max_frame_nbytes=MAX_NBYTES)
        except BaseException:
            self._wake.close()
            raise
        self.endpoint = self._socket.endpoint

    def start(self) -> RowServer:
        """Begin to serve; return this server."""
        self._thread = threading.Thread(target=self._run, name="row-server", daemon=True)
        self._thread.start()
        return self

    # --- sources

    def sources(self) -> dict[str, SourceState]:
        """Return the states of all sources that have joined, by name. Raises CommError if the server has failed."""
        with self._changed:
            self._raise_failure()
            return {name: each.state(self._num_refused[name]) for name, each in self._sources.items()}

    def wait_for_sources(self, number: int, timeout_s: float, *, role: str = "actor") -> bool:
        """Wait until so many sources of a role have joined, for at most `timeout_s`; return whether they have."""

        with self._changed:
            return self._changed.wait_for(lambda: self._failure is not None or self._num_of(role) >= number, timeout_s)

    def _num_of(self, role: str) -> int:
        return sum(each.role == role for each in self._sources.values())

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
            frames = self._message(
                found.route,
                "order",
                self._statistics if has_news else {},
                number=found.num_orders + 1,
                id=self._num_orders + 1,
                rows=rows,
                env_step=env_step,
                newest=None if newest is None else list(newest),
                extra=dict(extra or {}),
                has_statistics=has_news,
            )
            found.statistics = self._statistics_version
            found.num_orders += 1
            self._num_orders += 1
            found.orders[self._num_orders] = _Order(found.num_orders, rows, frames)
            self._send(frames)
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
        """Note that the rows of a segment are stored: its source may have another order."""
        with self._changed:
            self._counts["acknowledged"] += 1
            source = self._sources[arrived.source]
            if source.sender.run_id == arrived.run_id:
                source.num_unstored -= 1

    @property
    def queue_depth(self) -> int:
        """The number of segments that came and are not acknowledged."""
        with self._changed:
            return sum(each.num_unstored for each in self._sources.values())

    @property
    def counts(self) -> Counts:
        """The counts of what came."""
        with self._changed:
            return Counts(**self._counts)

    # --- what is reported beside

    def stats(self, name: str) -> dict[str, Any]:
        """Return the newest numbers that a source has sent, empty before."""
        with self._changed:
            return dict(self._stats.get(name, {}))

    def errors(self) -> list[ReportedError]:
        """Return the failures that sources have reported since, each once."""
        with self._changed:
            errors, self._errors = self._errors, []
            return errors

    def stop_all(self) -> None:
        """Tell all sources, and those that join later, that nothing is wanted any more."""
        with self._changed:
            self._is_stopping = True
            for source in self._sources.values():
                self._send(self._message(source.route, "stop"))

    def close(self) -> None:
        """End the thread and close the socket; what has not been sent is dropped. May be called again."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._wake.wake()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)
            if self._thread.is_alive():
                _logger.warning("the thread that takes in rows has not ended after %.0f s", _CLOSE_S)
                return  # it uses the socket still
        self._socket.close()
        self._wake.close()

    def _send(self, frames: list[Frame]) -> None:
        self._outbox.append(frames)
        self._wake.wake()

    def _message(
        self, route: bytes, kind: str, arrays: Mapping[str, Array] | None = None, /, **fields: Any
    ) -> list[Frame]:
        return [route, *encode({"kind": kind, "session": self.session, **fields}, arrays)]

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise CommError(f"the way of rows has failed: {self._failure}") from self._failure

    # --- the thread's side

    def _run(self) -> None:
        poller = Poller(self._socket, self._wake)
        try:
            while self._send_outbox():
                poller.wait(_LOOK_S)
                for _ in range(_AT_A_TIME):
                    came = self._socket.receive_from()
                    if came is None:
                        break
                    frames, key = came
                    self._take_in(bytes(frames[0]), key, frames[1:])
        except BaseException as error:  # any error of this thread is raised in the driver's
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _send_outbox(self) -> bool:
        """Send what there is; return whether to go on."""
        with self._changed:
            messages, self._outbox = self._outbox, []
            goes_on = not self._is_closed
        for frames in messages:
            # What is not taken is asked for by its source, once it can be reached again.
            if not self._socket.send(frames):
                with self._changed:
                    for source in self._sources.values():
                        source.is_connected &= source.route != frames[0]
        return goes_on

    def _take_in(self, route: bytes, key: str, frames: Sequence[Frame]) -> None:
        try:
            message = decode(frames, max_nbytes=MAX_NBYTES)
            answers = self._join(message, route, key) if message.kind == "hello" else self._answer(message, route)
        except CommError as error:
            with self._changed:
                self._counts["garbled"] += 1
                is_first = self._counts["garbled"] == 1
            if is_first:  # a sender of more of them is not to fill the disk
                _logger.warning("a message to the driver is dropped, as others like it will be: %s", error)
            return
        with self._changed:
            self._outbox.extend(answers)
            self._changed.notify_all()

    def _join(self, message: Message, route: bytes, key: str) -> list[list[Frame]]:
        """Enter a source, or refuse it; one that came back takes the place of its earlier run."""
        hello, welcome = hello_of(message.head), self._welcome()
        if welcome is None:  # a source that gets no answer says hello again
            return []
        sender = hello.sender
        with self._changed:
            before = self._sources.get(sender.name)
            reason = self._reason_against(hello, before, key)
            if reason:
                self._counts["refused"] += 1
                return [self._message(route, "refused", run_id=sender.run_id, reason=reason)]
            if before is None or before.sender != sender:
                self._sources[sender.name] = _Source(sender, hello.role, route, time.monotonic())
                self._has_news |= before is not None
            self._owners[sender.name] = key
            self._sources[sender.name].hear(route)
            own = dict(run_id=sender.run_id, instance=sender.instance, welcome=dict(welcome))
            answers = [self._message(route, "welcome", **own)]
            return [*answers, self._message(route, "stop")] if self._is_stopping else answers

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
        if before.role == "host" and own != sender and time.monotonic() - before.heard_s < _HOST_S:
            return f"{sender.name} has joined already"
        if before.role != hello.role:
            return f"{sender.name} is a {before.role} of this run"
        if sender.run_id < own.run_id or (sender.run_id == own.run_id and sender.instance != own.instance):
            return f"run {own.run_id} of {sender.name} has joined already; start it with a later run id"
        return ""

    def _answer(self, message: Message, route: bytes) -> list[list[Frame]]:
        head, sender = message.head, sender_of(message.head)
        with self._changed:
            source = self._sources.get(sender.name)
            if source is None:
                return [self._message(route, "unknown")]
            if source.sender != sender or sender.name in self._cut_off:
                replaced = f"run {source.sender.run_id} of {sender.name} has taken its place"
                reason = self._cut_off.get(sender.name, replaced)
                return [self._message(route, "refused", run_id=sender.run_id, reason=reason)]
            source.hear(route)
            if message.kind == "ask":
                return self._asked(source, count_of(head, "have"))
            if message.kind == "stats":
                self._stats[sender.name] = plain_of(head, "stats")
                return []
            if message.kind == "error":
                self._note_error(sender.name, text_of(head, "text"))
                return [self._message(route, "noted")]
        if message.kind != "segment":
            raise CommError(f"a message of kind {message.kind[:80]!r} is none that the driver takes.")
        return [self._take_segment(source, message)]

    def _asked(self, source: _Source, have: int) -> list[list[Frame]]:
        """Return the orders after number `have`, or that nothing is wanted; where there are none, a sign of life."""
        if self._is_stopping:
            return [self._message(source.route, "stop")]
        missing = [[source.route, *order.frames[1:]] for order in source.orders.values() if order.number > have]
        return missing or [self._message(source.route, "here")]

    def _take_segment(self, source: _Source, message: Message) -> list[Frame]:
        """Take in a segment that is the next of its source, and return the answer; only this thread does."""
        seq, order = count_of(message.head, "seq"), count_of(message.head, "order")
        if seq != source.last_seq + 1:
            is_early = seq > source.last_seq
            with self._changed:
                self._counts["early" if is_early else "duplicates"] += 1
            return self._message(source.route, "here") if is_early else self._message(source.route, "ack", seq=seq)
        try:
            if order not in source.orders:
                raise CommError(f"order {order} was not given")
            segment = segment_of(message.head, message.arrays, copies_rows=self._copies_rows)
            self._check(segment)
        except (DingError, ValueError, TypeError, OverflowError) as error:  # of numbers that no check foresaw
            with self._changed:
                return self._refuse(source, seq, order, str(error)[:MAX_TEXT])
        with self._changed:
            asked = source.orders.pop(order).rows
            source.last_seq = seq
            source.num_unstored += 1
            sender = source.sender
            self._arrived.append(Arrived(sender.name, sender.run_id, seq, order, asked, segment, time.monotonic()))
            self._counts.update(segments=1, rows=len(segment.batch))
            return self._message(source.route, "ack", seq=seq)

    def _refuse(self, source: _Source, seq: int, order: int, reason: str) -> list[Frame]:
        """Drop a segment for good; cut its source off for the rest of the run where that happens too often."""
        name = source.sender.name
        source.orders.pop(order, None)
        source.last_seq = seq
        self._counts["refused"] += 1
        self._num_refused[name] += 1
        self._note_error(name, f"segment {seq} of it was refused: {reason}")
        if not self._forgiven.setdefault(name, RestartBudget(_FORGIVEN)).spend():
            refused = f"{_FORGIVEN + 1} segments of it were refused within ten minutes"
            self._cut_off[name] = f"it is cut off: {refused}, the last one as {reason}"
            source.orders.clear()
            source.is_connected = False
            self._note_error(name, self._cut_off[name])
        return self._message(source.route, "refused", seq=seq, reason=reason)

    def _note_error(self, name: str, text: str) -> None:
        self._errors.append(ReportedError(name, text))
        del self._errors[:-_KEPT_ERRORS]
        self._has_news = True
