"""Be an actor's end of the way of rows: orders in, segments out, each kept until the driver has it where it stays."""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar, NamedTuple

from ding_like.comm.channels import Order, Segment, Version
from ding_like.comm.json_fields import count_of, plain_of, text_of
from ding_like.comm.json_version import version_of
from ding_like.comm.zmq.data_link import DataLink
from ding_like.comm.zmq.frames import Frame, Message, encode
from ding_like.comm.zmq.row_messages import segment_message
from ding_like.errors import CommError
from ding_like.types import Array


class _Given(NamedTuple):
    """An order as it came."""

    id: int
    rows: int
    env_step: int
    newest: Version | None
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
        self._under_way: int | None = None  # id of the order that was returned
        self._seq = 0
        self._unacknowledged: dict[int, tuple[int, list[Frame]]] = {}  # rows and frames by seq
        self._env_step = 0
        self._newest: Version | None = None
        self._statistics: dict[str, Array] | None = None

    def order(self, *, timeout_s: float) -> Order:
        """Return what is to be done next; wait for at most `timeout_s` while there is nothing.

        Raises CommError where the driver refuses this source or a segment of it, and if it is silent for too long.
        """
        self._wait_for(lambda: bool(self._orders) or self._is_stopped, timeout_s)
        return self._present()

    def put(self, segment: Segment) -> Order:
        """Send a segment for the order that was returned last, and return what is to be done next, without a wait.

        Without such an order it waits for one. Raises ConfigError for rows that do not stack, CommError as `order`.
        """
        if self._under_way is None:
            self._wait_for(lambda: bool(self._orders) or self._is_stopped, self._patience_s)
            self._present()
        if not self._orders or self._orders[0].id != self._under_way:
            if self._under_way is None and not self._is_stopped:
                raise CommError(f"{self.name} has rows that nobody has ordered within {self._patience_s:g} s.")
            self.dropped_rows += len(segment.batch)
        else:
            self._send_segment(self._orders.popleft(), segment)
        self._under_way = None
        self._wait_for(lambda: True, 0.0)
        return self._present()

    def take_statistics(self) -> dict[str, Array] | None:
        """Return what the envs' wrappers are to go by, once; None: it has not changed with the last order."""
        statistics, self._statistics = self._statistics, None
        return statistics

    def settle(self, timeout_s: float) -> bool:
        """Wait until all segments are acknowledged, for at most `timeout_s`; tell whether they are."""
        return self._wait_for(lambda: not self._unacknowledged, timeout_s)

    def _send_segment(self, given: _Given, segment: Segment) -> None:
        head, arrays = segment_message(segment, order=given.id, seq=self._seq + 1)
        frames = encode({**head, **self._sender()}, arrays)
        self._seq += 1
        self._unacknowledged[self._seq] = len(segment.batch), frames
        self._socket.send(frames)

    def _present(self) -> Order:
        """Return the order that is next, which is under way from now on."""
        if self._is_stopped or not self._orders:
            return Order(self._is_stopped, 0, self._env_step, self._newest)
        given = self._orders[0]
        if given.id != self._under_way:
            self._under_way, self.extra = given.id, given.extra
            self._env_step, self._newest = given.env_step, given.newest
            self._statistics = given.statistics if given.statistics is not None else self._statistics
        return Order(False, given.rows, given.env_step, given.newest)

    # --- what comes

    def _handle(self, message: Message) -> None:
        head, kind = message.head, message.kind
        if head.get("session") != self._session or not self._is_joined:
            super()._handle(message)
        elif kind == "order":
            self._take_order(message)
        elif kind == "ack":
            self._unacknowledged.pop(count_of(head, "seq"), None)
        elif kind == "refused" and "seq" in head:
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
        newest = None if head.get("newest") is None else version_of(head, "newest")
        statistics = None
        if head.get("has_statistics") is True:  # what came cannot be written to
            statistics = {name: array.copy() for name, array in message.arrays.items()}
        own = count_of(head, "id"), count_of(head, "rows"), count_of(head, "env_step")
        self._orders.append(_Given(*own, newest, plain_of(head, "extra"), statistics))

    def _forget(self) -> None:
        """Forget orders and segments of a driver that is no longer there; it may have stored what it did not say."""
        self.dropped_rows += sum(rows for rows, _ in self._unacknowledged.values())
        self._orders.clear()
        self._unacknowledged.clear()
        self._num_orders = self._seq = 0
        self._is_stopped = False

    def _say_again(self) -> None:
        for _, frames in self._unacknowledged.values():
            self._socket.send(frames)
        self._send("ask", have=self._num_orders)
