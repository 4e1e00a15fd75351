"""Channel of rows: sources (actors, inference servers, machines that joined) and the driver of their run.

To the driver: `hello`, `segment`, `ask` (for orders that have not come), `stats`, `error`. From it: `welcome`, `order`,
`ack` (a segment has come), `refused`, `noted` (an error is), `unknown` (send hello first), `here` (a sign of life),
`stop`. A source is a name with a run id, which grows when it is started again; `instance` distinguishes two processes
that claim to be the same. The orders of a source are numbered from 1, and segment n answers order n. Both ends take the
next number only, and send again what the other has not got: what is lost on the way comes later, what is repeated
counts once, and nothing overtakes.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ding_like.comm import channels
from ding_like.comm.channels import CollectRequest, Head, Segment, Version
from ding_like.comm.keys import SeedKeys
from ding_like.comm.workers.failures import RestartBudget
from ding_like.comm.zmq.sockets import Frame, Message, Poller, Wake, decode, encode, open_socket, reached_by
from ding_like.data.batch import Schema, TransitionBatch
from ding_like.errors import CommError, ConfigError, DingError
from ding_like.types import Array, Json

PROTOCOL = 3
MAX_NBYTES = 2**30  # of the arrays of a message
MAX_HOSTS = 99  # of a run: the numbers that are drawn from
_TRIES = 20  # at a number that no other machine has
_LINK_QUEUE = 16  # messages that wait while there is no connection; what is lost is sent again
_SERVER_QUEUE = 64  # messages from and to each source that wait: few, as a segment may be large
_ROLES = ("actor", "server", "host")  # a host is a machine that has joined, beside what works there
_MAX_NAME = 100  # characters
_LOOK_S = 1.0  # the thread is woken for whatever there is to do; this bounds its wait all the same
_AT_A_TIME = 64  # messages that are taken in before answers go out
_CLOSE_S = 10.0
_HOST_S = 60.0  # a host without a message for so long is gone, and its name may be another's
_FORGIVEN = 3  # segments of a source that are refused in ten minutes; with the next one it is cut off

_logger = logging.getLogger(__name__)


# --- a source's end


class DataLink:
    """Link of a source to its run's driver; one thread uses it, any may call `wake`.

    A source that is started again under its `name` has a later `run_id`. What is not answered is sent again after
    `timeout_s`; a driver that does not answer for `patience_s` counts as lost: CommError. A driver that was started
    again gets a new hello.
    """

    role = "server"
    number = 0  # of a machine that has joined: it is part of the names of all sources there

    def __init__(
        self,
        endpoint: str,
        *,
        name: str,
        run_id: int,
        keys: SeedKeys | None = None,
        timeout_s: float = 2.0,
        patience_s: float = 60.0,
    ) -> None:
        self.name, self.run_id, self.patience_s = name, run_id, patience_s
        self.welcome: Mapping[str, Json] = {}
        self.num_joined = 0  # drivers, one after another
        self.is_stopped = False  # the driver needs nothing any more, by what was received last
        self.is_refused = False
        self._timeout_s = timeout_s
        self._instance = secrets.token_hex(8)
        self._session = ""  # of the driver that was joined
        self._is_noted = False  # the error that was sent last
        self._refusal = ""
        self._sent_s = 0.0  # when something was received last, or sent again
        self._unanswered_s: float | None = None  # since when nothing has been answered
        self._socket = open_socket("dealer", connect=endpoint, keys=keys, hwm=_LINK_QUEUE)
        self._wake = Wake()
        self._poller = Poller(self._socket, self._wake)

    def join(self) -> Mapping[str, Json]:
        """Send hello until the driver answers; return its welcome as plain JSON: the endpoints of the run.

        Raises CommError with the driver's reason where it refuses, and if it does not answer within `patience_s`.
        """
        if not self._session:
            self._send_again()
        while not self.wait_until(lambda: bool(self._session), timeout_s=self.patience_s):
            pass
        return self.welcome

    def send_stats(self, stats: Mapping[str, Json]) -> None:
        """Send numbers, as plain JSON; those that get lost are not sent again."""
        self._send("stats", stats=dict(stats))

    def send_error(self, text: str) -> bool:
        """Report what has failed, before the end; return whether the driver has noted it within `timeout_s`."""
        self._is_noted = False
        try:
            if not self.wait_until(lambda: bool(self._session), timeout_s=0.0):
                self._send_again()
                self.wait_until(lambda: bool(self._session), timeout_s=self._timeout_s)
            self._send("error", text=text[: channels.MAX_TEXT])
            return self.wait_until(lambda: self._is_noted, timeout_s=self._timeout_s)
        except CommError:  # what has failed is worse
            return False

    @property
    def stopped(self) -> bool:
        """Whether the driver needs nothing any more; takes in what has come, and never waits."""
        self.wait_until(lambda: True, timeout_s=0.0)
        return self.is_stopped

    @property
    def is_away(self) -> bool:
        """Whether the driver has left unanswered what was sent again."""
        return self._unanswered_s is not None and time.monotonic() - self._unanswered_s >= 2 * self._timeout_s

    def wait_until(self, is_due: Callable[[], bool], *, timeout_s: float) -> bool:
        """Take in what comes until it is due, for at most `timeout_s`; return whether it is.

        Raises CommError where the driver refuses this source, or does not answer for too long.
        """
        deadline_s = time.monotonic() + timeout_s
        while True:
            self._take_in()
            now_s = time.monotonic()
            if is_due() or now_s >= deadline_s:
                return is_due()
            if now_s - self._sent_s >= self._timeout_s:
                self._send_again()
            self._poller.wait(min(deadline_s, self._sent_s + self._timeout_s) - now_s)

    def wake(self) -> None:
        """Have `wait_until` check again whether it is due."""
        self._wake.wake()

    def close(self) -> None:
        """Close the socket; may be called again."""
        self._socket.close()
        self._wake.close()

    def _take_in(self) -> None:
        while (frames := self._socket.receive()) is not None:
            self._sent_s, self._unanswered_s = time.monotonic(), None
            try:
                self._handle(decode(frames, max_nbytes=MAX_NBYTES))
            except CommError as error:
                raise CommError(f"the driver at {self._socket.endpoint} sent an invalid message: {error}") from error
            if self._refusal:
                refusal, self._refusal, self.is_refused = self._refusal, "", True
                raise CommError(refusal)

    def _handle(self, message: Message) -> None:
        """Take one message in."""
        head, kind = message.head, message.kind
        if kind == "welcome":
            if not self._session and head.get("instance") == self._instance:
                self._session = channels.text_of(head, "session")
                self.welcome = {
                    name: reached_by(each, self._socket.endpoint) if isinstance(each, str) else each
                    for name, each in channels.plain_of(head, "welcome").items()
                }
                self.num_joined += 1
        elif kind == "unknown":
            # A driver that was started again. To it this source is another than the one that it may know.
            if self._session and head.get("session") != self._session:
                self._session, self._instance = "", secrets.token_hex(8)
                self._forget()
                self._send_again()
        elif kind == "refused" and head.get("run_id") == self.run_id:
            self._refusal = f"{self.name} (run {self.run_id}) cannot join: {channels.text_of(head, 'reason')}."
        elif kind == "stop":
            self.is_stopped = True
        elif kind == "noted":
            self._is_noted = True

    def _forget(self) -> None:
        """Forget the state of a driver that has ended."""
        self.is_stopped = False

    def _send_again(self) -> None:
        """Send again what is to be answered. Raises CommError if nothing was answered for `patience_s`."""
        self._sent_s = now_s = time.monotonic()
        self._unanswered_s = now_s if self._unanswered_s is None else self._unanswered_s
        if now_s - self._unanswered_s >= self.patience_s:
            raise CommError(
                f"the driver of the run has not answered {self.name} at {self._socket.endpoint} for "
                f"{self.patience_s:g} s: it has ended, cannot be reached from here, or this key is not listed in its "
                "key file."
            )
        if self._session:
            self._ask()
        else:
            self._send("hello", role=self.role, protocol=PROTOCOL)

    def _ask(self) -> None:
        self._send("ask", have=0)

    def _send(self, kind: str, **fields: Json) -> None:
        self._socket.send(self._encode(kind, fields))

    def _encode(self, kind: str, fields: Mapping[str, Json], arrays: Mapping[str, Array] | None = None) -> list[Frame]:
        sender = {"name": self.name, "run_id": self.run_id, "instance": self._instance}
        return encode({"kind": kind, **sender, **fields}, arrays)


def join_as_host(endpoint: str, *, keys: SeedKeys | None, patience_s: float) -> DataLink:
    """Join the run whose driver is at an endpoint, under a number that no other machine has.

    Raises CommError where the driver refuses, and if it does not answer within `patience_s`.
    """
    for left in reversed(range(_TRIES)):
        number = 1 + secrets.randbelow(MAX_HOSTS)
        # The run id is later than that of every machine that has had the number before.
        link = DataLink(endpoint, name=f"host{number}", run_id=int(time.time()), keys=keys, patience_s=patience_s)
        link.role, link.number = "host", number
        try:
            link.join()
            return link
        except BaseException:  # closed after any error, and raised again
            link.close()
            # Without an answer another number would not be answered either.
            if not link.is_refused or not left:
                raise
    raise AssertionError("the last try returns or raises")


class _Received(NamedTuple):
    """Order as it came."""

    order: CollectRequest
    extra: dict[str, Json]
    statistics: dict[str, Array] | None


class ZmqRowSink(DataLink):
    """Sender of an actor thread's segments, and receiver of its orders; see `RowSink`.

    A segment is kept, and sent again where need be, until the driver has acknowledged it. The driver gives no more
    orders than its credit: an actor that is ahead of the learner gets orders of 0 rows.
    """

    role = "actor"

    def __init__(self, endpoint: str, **link: Any) -> None:  # Any: what a DataLink takes
        super().__init__(endpoint, **link)
        self.extra: dict[str, Json] = {}  # of the order returned last
        self.dropped_rows = 0  # for a driver that was started again, and did not ask for them
        self._orders: deque[_Received] = deque()  # without a segment yet; the first is the one under way
        self._under_way: _Received | None = None  # the order that was returned
        self._num_sent = 0  # segments for this driver
        self._unacknowledged: dict[int, tuple[int, list[Frame]]] = {}  # rows and frames by number
        self._last = CollectRequest(False, 0, 0, None)
        self._statistics: dict[str, Array] | None = None

    def order(self, *, timeout_s: float) -> CollectRequest:
        """Return the next order; wait for at most `timeout_s` while there is none.

        Raises CommError where the driver refuses this source or a segment of it, or does not answer for too long.
        """
        self.wait_until(lambda: bool(self._orders) or self.is_stopped, timeout_s=timeout_s)
        if self.is_stopped or not self._orders:
            return self._last._replace(finish=self.is_stopped, rows=0)
        received = self._orders[0]
        if received is not self._under_way:
            self._under_way, self._last, self.extra = received, received.order, received.extra
            self._statistics = received.statistics if received.statistics is not None else self._statistics
        return received.order

    def put(self, segment: Segment) -> CollectRequest:
        """Send a segment for the order that was returned last, and return the next one, without a wait.

        Without such an order it waits for one. Raises ConfigError for rows that do not stack, CommError as `order`.
        """
        if self._under_way is None and not self.order(timeout_s=self.patience_s).rows and not self.is_stopped:
            raise CommError(f"{self.name} has rows that were not ordered within {self.patience_s:g} s.")
        if self._orders and self._orders[0] is self._under_way:
            self._send_segment(segment)
        else:
            self.dropped_rows += len(segment.batch)
        self._under_way = None
        return self.order(timeout_s=0.0)

    def take_statistics(self) -> dict[str, Array] | None:
        """Return the statistics for the envs' wrappers, once; None: they have not changed with the last order."""
        statistics, self._statistics = self._statistics, None
        return statistics

    def settle(self, timeout_s: float) -> bool:
        """Wait until all segments are acknowledged, for at most `timeout_s`; return whether they are."""
        return self.wait_until(lambda: not self._unacknowledged, timeout_s=timeout_s)

    def _send_segment(self, segment: Segment) -> None:
        batch = segment.batch
        if not isinstance(batch, TransitionBatch):
            raise ConfigError("the policy gives rows that do not stack; mode seed needs rows of equal shapes.")
        parts = {"columns": batch.columns, "observed": segment.observed}
        arrays = {f"{part}/{name}": array for part, named in parts.items() for name, array in named.items()}
        number = self._num_sent + 1
        fields = {
            "number": number, "rows": len(batch), "version": list(segment.version), "env_steps": segment.env_steps,
            "stats": dict(segment.stats),
        }  # fmt: skip
        frames = self._encode("segment", fields, arrays)
        self._orders.popleft()
        self._num_sent = number
        self._unacknowledged[number] = len(batch), frames
        self._socket.send(frames)

    # --- what comes

    def _handle(self, message: Message) -> None:
        head, kind = message.head, message.kind
        is_own = bool(self._session) and head.get("session") == self._session
        if is_own and kind == "order":
            self._take_order(message)
        elif is_own and kind == "ack":
            self._unacknowledged.pop(channels.count_of(head, "number"), None)
        elif is_own and kind == "refused" and "number" in head:
            number = channels.count_of(head, "number")
            if self._unacknowledged.pop(number, None) is not None:
                self._refusal = (
                    f"the driver refuses segment {number} of {self.name}: {channels.text_of(head, 'reason')}"
                )
        else:
            super()._handle(message)

    @property
    def _num_orders(self) -> int:
        """Number of orders that came of this driver."""
        return self._num_sent + len(self._orders)

    def _take_order(self, message: Message) -> None:
        head = message.head
        # Another number: the order came already, or one before it was lost.
        if channels.count_of(head, "number") != self._num_orders + 1:
            return
        newest: Version | None = None if head.get("newest") is None else channels.version_of(head, "newest")
        order = CollectRequest(False, channels.count_of(head, "rows"), channels.count_of(head, "env_step"), newest)
        statistics = None
        if head.get("has_statistics") is True:  # copied: the arrays of a message are read-only
            statistics = {name: array.copy() for name, array in message.arrays.items()}
        self._orders.append(_Received(order, channels.plain_of(head, "extra"), statistics))

    def _forget(self) -> None:
        """Forget orders and segments of a driver that has ended; it may have stored segments without an `ack`."""
        super()._forget()
        self.dropped_rows += sum(rows for rows, _ in self._unacknowledged.values())
        self._orders.clear()
        self._unacknowledged.clear()
        self._num_sent = 0

    def _ask(self) -> None:
        for _, frames in self._unacknowledged.values():
            self._socket.send(frames)
        self._send("ask", have=self._num_orders)


# --- the driver's end


class Arrived(NamedTuple):
    """Segment for order `number` of its source's run, which asked for `asked` rows (of whole episodes: episodes)."""

    source: str
    run_id: int
    number: int
    asked: int
    segment: Segment
    came_s: float


@dataclass
class Source:
    """State of a source."""

    name: str
    role: str
    run_id: int = 0
    instance: str = ""
    key: str = ""  # public key of its owner
    route: bytes = b""
    connected: bool = True  # as far as is known: one that was killed is until something is sent there
    heard_s: float = 0.0  # when its last message came
    # Rows and frames of orders by number, those for which no segment came.
    orders: dict[int, tuple[int, list[Frame]]] = field(default_factory=dict)
    num_orders: int = 0
    num_segments: int = 0  # that came, refused ones included
    num_unstored: int = 0  # segments that came and are not acknowledged
    statistics: int = 0  # version of those that it was sent
    stats: Mapping[str, Json] = field(default_factory=dict)  # the numbers that it has sent last
    refused: int = 0  # segments of this source, of all its runs
    may_be_refused: RestartBudget = field(default_factory=lambda: RestartBudget(_FORGIVEN))
    cut_off: str = ""  # why it is, if it is


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
        welcome: Mapping[str, Json] | None = None,
        check: Callable[[Segment], None] | None = None,
        own_names: Collection[str] = (),
    ) -> None:
        self.counts = Counter[str](segments=0, rows=0, acknowledged=0, duplicates=0, early=0, refused=0, garbled=0)
        self._session = secrets.token_hex(8)  # sources send hello again to a driver of another session
        self._credit = credit
        self._welcome = dict(welcome or {})
        self._check = check
        self._schema: Schema | None = None
        self._own = dict.fromkeys(own_names, "" if keys is None else keys.own.public)
        self._changed = threading.Condition()  # guards all that follows
        self._sources: dict[str, Source] = {}
        self._statistics: Mapping[str, Array] = {}
        self._statistics_version = 0
        self._arrived: list[Arrived] = []
        self._errors: list[tuple[str, str]] = []
        self._has_news = False  # an error, or a source that came back
        self._outbox: deque[list[Frame]] = deque()
        self._is_stopping = self._is_closed = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="row-server", daemon=True)
        self._socket = open_socket("router", bind=endpoint, keys=keys, hwm=_SERVER_QUEUE, max_frame_nbytes=MAX_NBYTES)
        self._wake = Wake()
        self.endpoint = self._socket.endpoint

    def start(self) -> RowServer:
        """Begin to serve; return this server."""
        self._thread.start()
        return self

    def sources(self) -> dict[str, Source]:
        """Return the states of all sources that have joined, by name. Raises CommError if the server has failed."""
        with self._changed:
            self._raise_failure()
            return {name: replace(each, orders=dict(each.orders)) for name, each in self._sources.items()}

    def give(
        self, source: str, rows: int, *, env_step: int, newest: Version | None, extra: Mapping[str, Json] | None = None
    ) -> tuple[int, int] | None:
        """Order rows of a source, with `extra` as plain JSON; return its run id and the number of the order.

        None: the source has not joined, was cut off, or has as many orders as its credit. Raises CommError for an
        `extra` that is no JSON, and if the server has failed.
        """
        with self._changed:
            self._raise_failure()
            found = self._sources.get(source)
            if found is None or found.cut_off or self._is_stopping:
                return None
            if len(found.orders) + found.num_unstored >= self._credit:
                return None
            number, has_news = found.num_orders + 1, found.statistics < self._statistics_version
            head = {
                "number": number, "rows": rows, "env_step": env_step, "newest": newest and list(newest),
                "extra": dict(extra or {}), "has_statistics": has_news,
            }  # fmt: skip
            frames = self._send(found.route, "order", self._statistics if has_news else None, **head)
            found.statistics = self._statistics_version
            found.num_orders = number
            found.orders[number] = rows, frames
            return found.run_id, number

    def open_rows(self, sources: Sequence[str]) -> int:
        """Return the rows that these sources were ordered and have not handed over."""
        with self._changed:
            found = [self._sources[name] for name in sources if name in self._sources]
            return sum(rows for each in found for rows, _ in each.orders.values())

    def use_statistics(self, arrays: Mapping[str, Array]) -> None:
        """Send copies of arrays, by which the envs' wrappers normalise, with the next order to each source."""
        with self._changed:
            self._statistics = {name: array.copy() for name, array in arrays.items()}
            self._statistics_version += 1

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
            if source.run_id == arrived.run_id:
                source.num_unstored -= 1

    @property
    def queue_depth(self) -> int:
        """The number of segments that came and are not acknowledged."""
        with self._changed:
            return sum(each.num_unstored for each in self._sources.values())

    def errors(self) -> list[tuple[str, str]]:
        """Return (source, text) of the failures that sources have reported since, each once."""
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
        self, route: bytes, kind: str, arrays: Mapping[str, Array] | None = None, /, **fields: Json
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
                while self._outbox:
                    frames = self._outbox.popleft()
                    # A source asks for what was not taken, once it can be reached again.
                    if not self._socket.send(frames):
                        with self._changed:
                            for source in self._sources.values():
                                source.connected &= source.route != frames[0]
                poller.wait(_LOOK_S)
                for _ in range(_AT_A_TIME):
                    if (came := self._socket.receive_from()) is None:
                        break
                    self._take_in(*came)
        except BaseException as error:  # any error of this thread is raised in the driver's
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _take_in(self, frames: Sequence[Frame], key: str) -> None:
        try:
            message = decode(frames[1:], max_nbytes=MAX_NBYTES)
            head, route = message.head, bytes(frames[0])
            name, instance = (channels.name_of(head, each, most=_MAX_NAME) for each in ("name", "instance"))
            sender = Source(name, head.get("role", ""), channels.count_of(head, "run_id"), instance, key, route)
            with self._changed:
                if message.kind == "hello":
                    self._join(head, sender)
                else:
                    self._answer(message, sender)
                self._changed.notify_all()
        except CommError as error:
            self.counts["garbled"] += 1
            if self.counts["garbled"] == 1:  # many of them must not fill the disk
                _logger.warning("a message to the driver is dropped, as others like it will be: %s", error)

    def _join(self, head: Head, sender: Source) -> None:
        """Enter a source, or refuse it; one that came back takes the place of its earlier run."""
        if sender.role not in _ROLES:
            raise CommError(
                f"the role of a source is {channels.short(sender.role)}; expected one of {', '.join(_ROLES)}."
            )
        before = self._sources.get(sender.name)
        reason = self._reason_against(sender, before, channels.count_of(head, "protocol"))
        if reason:
            self.counts["refused"] += 1
            self._send(sender.route, "refused", run_id=sender.run_id, reason=reason)
            return
        if before is None:
            self._sources[sender.name] = sender
        elif not _is_same(before, sender):
            self._has_news = True
            sender.refused, sender.may_be_refused = before.refused, before.may_be_refused
            self._sources[sender.name] = sender
        self._note_alive(self._sources[sender.name], sender.route)
        self._send(sender.route, "welcome", run_id=sender.run_id, instance=sender.instance, welcome=self._welcome)
        if self._is_stopping:
            self._send(sender.route, "stop")

    def _note_alive(self, source: Source, route: bytes) -> None:
        source.route, source.heard_s, source.connected = route, time.monotonic(), True

    def _reason_against(self, sender: Source, before: Source | None, protocol: int) -> str:
        """Return why a source may not join, "" for one that may."""
        name = sender.name
        if protocol != PROTOCOL:
            return f"its protocol has version {protocol}, that of the run {PROTOCOL}; install the ding-like of the run"
        if sender.key != (before.key if before is not None else self._own.get(name, sender.key)):
            return f"{name} is of another machine, which has another key"
        if before is None or before.cut_off:
            return "" if before is None else before.cut_off
        is_same = _is_same(before, sender)
        if before.role == "host" and not is_same and time.monotonic() - before.heard_s < _HOST_S:
            return f"{name} has joined already"
        if before.role != sender.role:
            return f"{name} is a {before.role} of this run"
        if sender.run_id < before.run_id or (sender.run_id == before.run_id and not is_same):
            return f"run {before.run_id} of {name} has joined already; start it with a later run id"
        return ""

    def _answer(self, message: Message, sender: Source) -> None:
        head, kind, source = message.head, message.kind, self._sources.get(sender.name)
        if source is None:
            self._send(sender.route, "unknown")
            return
        if source.cut_off or not _is_same(source, sender):
            reason = source.cut_off or f"run {source.run_id} of {sender.name} has taken its place"
            self._send(sender.route, "refused", run_id=sender.run_id, reason=reason)
            return
        self._note_alive(source, sender.route)
        if kind == "ask":
            # The orders after those that it has, or that nothing is needed; where there are none, a sign of life.
            have = channels.count_of(head, "have")
            missing = [[source.route, *frames[1:]] for number, (_, frames) in source.orders.items() if number > have]
            if self._is_stopping or not missing:
                self._send(source.route, "stop" if self._is_stopping else "here")
            self._outbox.extend([] if self._is_stopping else missing)
        elif kind == "stats":
            source.stats = channels.plain_of(head, "stats")
        elif kind == "error":
            self._note_error(source, channels.text_of(head, "text"))
            self._send(source.route, "noted")
        elif kind == "segment":
            self._take_segment(source, message)
        else:
            raise CommError(f"a message of kind {kind[:80]!r} is none that the driver takes.")

    def _take_segment(self, source: Source, message: Message) -> None:
        """Take in a segment that is the next of its source."""
        number = channels.count_of(message.head, "number")
        if number > source.num_segments + 1:
            self.counts["early"] += 1
            self._send(source.route, "here")
            return
        if number <= source.num_segments:
            self.counts["duplicates"] += 1
            self._send(source.route, "ack", number=number)
            return
        source.num_segments = number
        try:
            if number not in source.orders:
                raise CommError(f"order {number} was not given")
            asked, _ = source.orders.pop(number)
            segment = self._segment_of(message)
        except (DingError, ValueError, TypeError, OverflowError) as error:  # of numbers that no check foresaw
            self._refuse(source, number, str(error)[: channels.MAX_TEXT])
            return
        source.num_unstored += 1
        self._arrived.append(Arrived(source.name, source.run_id, number, asked, segment, time.monotonic()))
        self.counts.update(segments=1, rows=len(segment.batch))
        self._send(source.route, "ack", number=number)

    def _segment_of(self, message: Message) -> Segment:
        """Return the segment that a message holds, in memory of its own. Raises CommError or SchemaError."""
        head, parts = message.head, {"columns": {}, "observed": {}}  # type: Head, dict[str, dict[str, Array]]
        for key, array in message.arrays.items():
            part, _, name = key.partition("/")
            if part not in parts or not name:
                raise CommError(
                    f"a segment has the array {channels.short(key)}; expected it in one of {', '.join(parts)}."
                )
            parts[part][name] = array.copy()  # policies make tensors of it, and what came is read-only
        columns, rows = parts["columns"], channels.count_of(head, "rows")
        if rows < 1 or not columns or any(column.ndim < 1 or len(column) != rows for column in columns.values()):
            shapes = channels.short({name: column.shape for name, column in columns.items()})
            raise CommError(f"a segment of {rows:,} rows has columns of shapes {shapes}; expected [B, ...], B >= 1.")
        batch, stats = TransitionBatch(columns), channels.plain_of(head, "stats")
        version = channels.version_of(head, "version")
        segment = Segment(batch, version, channels.count_of(head, "env_steps"), stats, parts["observed"])
        if self._check is not None:
            self._check(segment)
        self._schema = self._schema or batch.schema
        self._schema.check(columns, where="the run")
        return segment

    def _refuse(self, source: Source, number: int, reason: str) -> None:
        """Drop a segment for good; cut its source off for the rest of the run where that happens too often."""
        self.counts["refused"] += 1
        source.refused += 1
        self._note_error(source, f"segment {number} of it was refused: {reason}")
        if not source.may_be_refused.spend():
            refused = f"{_FORGIVEN + 1} segments of it were refused within ten minutes"
            source.cut_off = f"it is cut off: {refused}, the last one as {reason}"
            source.orders.clear()
            source.connected = False
            self._note_error(source, source.cut_off)
        self._send(source.route, "refused", number=number, reason=reason)

    def _note_error(self, source: Source, text: str) -> None:
        self._errors.append((source.name, text))
        self._has_news = True


def _is_same(one: Source, other: Source) -> bool:
    """Return whether two are the same run of a source."""
    return (one.run_id, one.instance) == (other.run_id, other.instance)
