"""Links of a run's sources (actors, inference servers, machines that joined) to its driver, at the data endpoint.

To the driver: `hello`, `segment`, `ask` (for orders that have not come), `stats`, `error`. From it: `welcome`, `order`,
`ack` (a segment has come), `refused`, `noted` (an error is), `unknown` (send hello first), `here` (a sign of life),
`stop`. A source is a name with a run id, which grows when it is started again; `instance` tells two processes apart
that claim to be the same. Orders of a source are numbered from 1, and so are its segments. Either end takes the next
number only, and sends again what the other has not got: what is lost on the way comes later, what is repeated counts
once, and nothing overtakes.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from ding_like.comm.channels import CollectRequest, Segment, Version
from ding_like.comm.json_fields import MAX_TEXT, count_of, plain_of, text_of
from ding_like.comm.json_version import version_of
from ding_like.comm.zmq.frames import Frame, Message, decode, encode
from ding_like.comm.zmq.sockets import Poller, Wake, open_socket, reached_by
from ding_like.data.batch import TransitionBatch
from ding_like.errors import CommError, ConfigError
from ding_like.types import Array

if TYPE_CHECKING:
    from ding_like.comm.zmq.keys import SeedKeys

PROTOCOL = 2
MAX_NBYTES = 2**30  # of the arrays of a message
MAX_HOSTS = 99  # of a run: the numbers that are drawn from
_QUEUE = 16  # messages that wait while there is no connection; what is lost is sent again
_TRIES = 20  # at a number that no other machine has


class DataLink:
    """Link of a source to its run's driver; one thread uses it, any may call `wake`.

    A source that is started again under its `name` has a later `run_id`. What is not answered is sent again after
    `timeout_s`; a driver that does not answer for `patience_s` counts as lost: CommError. A driver that was started
    again gets a new hello.
    """

    role: ClassVar[str] = "server"

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
        self.name = name
        self.run_id = run_id
        self.patience_s = patience_s
        self.welcome: Mapping[str, Any] = {}  # Any: of JSON
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
        self._socket = open_socket("dealer", connect=endpoint, keys=keys, hwm=_QUEUE)
        self._wake = Wake()
        self._poller = Poller(self._socket, self._wake)

    def join(self) -> Mapping[str, Any]:
        """Send hello until the driver answers; return its welcome as plain JSON: the endpoints of the run.

        Raises CommError with the driver's reason where it refuses, and if it does not answer within `patience_s`.
        """
        if not self._session:
            self._send_again()
        while not self.wait_until(lambda: bool(self._session), timeout_s=self.patience_s):
            pass
        return self.welcome

    def send_stats(self, stats: Mapping[str, Any]) -> None:
        """Send numbers, as plain JSON; those that get lost are not sent again."""
        self._send("stats", stats=dict(stats))

    def send_error(self, text: str) -> bool:
        """Report what has failed, before the end; return whether the driver has noted it within `timeout_s`."""
        self._is_noted = False
        try:
            if not self.wait_until(lambda: bool(self._session), timeout_s=0.0):
                self._send_again()
                self.wait_until(lambda: bool(self._session), timeout_s=self._timeout_s)
            self._send("error", text=text[:MAX_TEXT])
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
        deadline = time.monotonic() + timeout_s
        while True:
            self._take_in()
            now = time.monotonic()
            if is_due() or now >= deadline:
                return is_due()
            if now - self._sent_s >= self._timeout_s:
                self._send_again()
            self._poller.wait(min(deadline, self._sent_s + self._timeout_s) - now)

    def wake(self) -> None:
        """Have `wait_until` look again whether it is due."""
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
                raise CommError(f"the driver at {self._socket.endpoint} sends nonsense: {error}") from error
            if self._refusal:
                refusal, self._refusal, self.is_refused = self._refusal, "", True
                raise CommError(refusal)

    def _handle(self, message: Message) -> None:
        """Take one message in."""
        head, kind = message.head, message.kind
        if kind == "welcome":
            if not self._session and head.get("instance") == self._instance:
                self._session = text_of(head, "session")
                self.welcome = {
                    name: reached_by(each, self._socket.endpoint) if isinstance(each, str) else each
                    for name, each in plain_of(head, "welcome").items()
                }
                self.num_joined += 1
        elif kind == "unknown":
            # A driver that was started again. To it this source is another than the one that it may know.
            if self._session and head.get("session") != self._session:
                self._session, self._instance = "", secrets.token_hex(8)
                self._forget()
                self._send_again()
        elif kind == "refused" and head.get("run_id") == self.run_id:
            self._refusal = f"{self.name} (run {self.run_id}) cannot join: {text_of(head, 'reason')}."
        elif kind == "stop":
            self.is_stopped = True
        elif kind == "noted":
            self._is_noted = True

    def _forget(self) -> None:
        """Forget the state of a driver that has ended."""
        self.is_stopped = False

    def _send_again(self) -> None:
        """Send again what is to be answered. Raises CommError if nothing was answered for `patience_s`."""
        self._sent_s = now = time.monotonic()
        self._unanswered_s = now if self._unanswered_s is None else self._unanswered_s
        if now - self._unanswered_s >= self.patience_s:
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

    def _send(self, kind: str, **fields: Any) -> None:
        self._socket.send(encode({"kind": kind, **self._sender(), **fields}))

    def _sender(self) -> dict[str, Any]:
        return {"name": self.name, "run_id": self.run_id, "instance": self._instance}


class HostLink(DataLink):
    """Link of a machine that has joined a run; its `number` is part of the names of all sources there."""

    role: ClassVar[str] = "host"

    def __init__(self, endpoint: str, *, number: int, **link: Any) -> None:  # Any: what a DataLink takes
        # The run id is later than that of every machine that has had the number before.
        super().__init__(endpoint, name=f"host{number}", run_id=int(time.time()), **link)
        self.number = number


def join_as_host(endpoint: str, *, keys: SeedKeys | None, patience_s: float) -> HostLink:
    """Join the run whose driver is at an endpoint, under a number that no other machine has.

    Raises CommError where the driver refuses, and if it does not answer within `patience_s`.
    """
    for left in reversed(range(_TRIES)):
        link = HostLink(endpoint, number=1 + secrets.randbelow(MAX_HOSTS), keys=keys, patience_s=patience_s)
        try:
            link.join()
            return link
        except BaseException:  # closed after any error, and raised again
            link.close()
            # Without an answer another number would not be answered either.
            if not link.is_refused or not left:
                raise
    raise AssertionError("the last try returns or raises")


class _Given(NamedTuple):
    """Order as it came."""

    id: int
    order: CollectRequest
    extra: dict[str, Any]  # Any: of JSON
    statistics: dict[str, Array] | None


class ZmqRowSink(DataLink):
    """Sender of an actor thread's segments, and receiver of its orders; see `RowSink`.

    A segment is kept, and sent again where need be, until the driver has acknowledged it. The driver gives no more
    orders than its credit: an actor that is ahead of the learner gets orders of 0 rows.
    """

    role: ClassVar[str] = "actor"

    def __init__(self, endpoint: str, **link: Any) -> None:  # Any: what a DataLink takes
        super().__init__(endpoint, **link)
        self.extra: dict[str, Any] = {}  # of the order returned last; Any: of JSON
        self.dropped_rows = 0  # for a driver that was started again, and did not ask for them
        self._orders: deque[_Given] = deque()  # the first is the one under way
        self._num_orders = 0  # that came of this driver
        self._under_way: _Given | None = None  # the order that was returned
        self._seq = 0
        self._unacknowledged: dict[int, tuple[int, list[Frame]]] = {}  # rows and frames by seq
        self._last = CollectRequest(False, 0, 0, None)
        self._statistics: dict[str, Array] | None = None

    def order(self, *, timeout_s: float) -> CollectRequest:
        """Return the next order; wait for at most `timeout_s` while there is none.

        Raises CommError where the driver refuses this source or a segment of it, or does not answer for too long.
        """
        self.wait_until(lambda: bool(self._orders) or self.is_stopped, timeout_s=timeout_s)
        if self.is_stopped or not self._orders:
            return self._last._replace(finish=self.is_stopped, rows=0)
        given = self._orders[0]
        if given is not self._under_way:
            self._under_way, self._last, self.extra = given, given.order, given.extra
            self._statistics = given.statistics if given.statistics is not None else self._statistics
        return given.order

    def put(self, segment: Segment) -> CollectRequest:
        """Send a segment for the order that was returned last, and return the next one, without a wait.

        Without such an order it waits for one. Raises ConfigError for rows that do not stack, CommError as `order`.
        """
        if self._under_way is None and not self.order(timeout_s=self.patience_s).rows and not self.is_stopped:
            raise CommError(f"{self.name} has rows that were not ordered within {self.patience_s:g} s.")
        if self._orders and self._orders[0] is self._under_way:
            self._send_segment(self._orders.popleft().id, segment)
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

    def _send_segment(self, order: int, segment: Segment) -> None:
        batch = segment.batch
        if not isinstance(batch, TransitionBatch):
            raise ConfigError("the policy gives rows that do not stack; mode seed needs rows of equal shapes.")
        arrays = {f"columns/{name}": column for name, column in batch.columns.items()}
        arrays.update({f"observed/{name}": array for name, array in segment.observed.items()})
        head = {
            "kind": "segment", **self._sender(), "order": order, "seq": self._seq + 1, "rows": len(batch),
            "version": list(segment.version), "env_steps": segment.env_steps, "stats": dict(segment.stats),
        }  # fmt: skip
        frames = encode(head, arrays)
        self._seq += 1
        self._unacknowledged[self._seq] = len(batch), frames
        self._socket.send(frames)

    # --- what comes

    def _handle(self, message: Message) -> None:
        head, kind = message.head, message.kind
        is_own = bool(self._session) and head.get("session") == self._session
        if is_own and kind == "order":
            self._take_order(message)
        elif is_own and kind == "ack":
            self._unacknowledged.pop(count_of(head, "seq"), None)
        elif is_own and kind == "refused" and "seq" in head:
            seq = count_of(head, "seq")
            if self._unacknowledged.pop(seq, None) is not None:
                self._refusal = f"the driver refuses segment {seq} of {self.name}: {text_of(head, 'reason')}"
        else:
            super()._handle(message)

    def _take_order(self, message: Message) -> None:
        head = message.head
        if count_of(head, "number") != self._num_orders + 1:  # one that came already, or before one that was lost
            return
        self._num_orders += 1
        newest: Version | None = None if head.get("newest") is None else version_of(head, "newest")
        statistics = None
        if head.get("has_statistics") is True:  # copied: the arrays of a message are read-only
            statistics = {name: array.copy() for name, array in message.arrays.items()}
        order = CollectRequest(False, count_of(head, "rows"), count_of(head, "env_step"), newest)
        self._orders.append(_Given(count_of(head, "id"), order, plain_of(head, "extra"), statistics))

    def _forget(self) -> None:
        """Forget orders and segments of a driver that has ended; it may have stored segments without an `ack`."""
        super()._forget()
        self.dropped_rows += sum(rows for rows, _ in self._unacknowledged.values())
        self._orders.clear()
        self._unacknowledged.clear()
        self._num_orders = self._seq = 0

    def _ask(self) -> None:
        for _, frames in self._unacknowledged.values():
            self._socket.send(frames)
        self._send("ask", have=self._num_orders)
