"""Be the driver's end of the way of rows: one socket, to which all who collect send and by which they are told."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ding_like.comm.channels import Segment, Version
from ding_like.comm.json_fields import MAX_TEXT, count_of, counts_of, plain_of, text_of
from ding_like.comm.zmq.frames import Frame, Message, decode
from ding_like.comm.zmq.row_book import Arrived, Counts, Reply, ReportedError, RowBook, SourceState
from ding_like.comm.zmq.row_messages import MAX_NBYTES, RowSchema, hello_of, segment_of, sender_of
from ding_like.comm.zmq.sockets import Poller, Wake, open_socket
from ding_like.errors import CommError, DingError
from ding_like.types import Array

if TYPE_CHECKING:
    from ding_like.comm.zmq.keys import SeedKeys

_LOOK_S = 1.0  # the thread is woken for whatever there is to do; this bounds its wait all the same
_AT_A_TIME = 64  # messages that are taken in before answers go out
_QUEUE = 64  # messages from and to each source that wait: few, as a segment may be large
_CLOSE_S = 10.0

_logger = logging.getLogger(__name__)


class RowServer:
    """Give orders to sources and take in their segments, each once and each source's in order.

    A source has at most `credit` orders for which nothing is acknowledged, all together at most `max_waiting` (None:
    any number): rows that nobody stores take bounded memory, and their senders wait. `welcome` returns what a source is
    told when it joins, as plain JSON; None: it is not known yet, and the source asks again. `check` raises for a
    segment that is not to be learned from, which is refused; without it all have the columns of the first. It is called
    by this server's thread, which alone uses the socket.

    Without `copies_rows` the columns of segments are read-only, in the memory in which they came: for whoever stores
    copies of them.

    With `keys`, a source's name is its first owner's: the next run of it must come with the same key, and those of
    `own_names` with the key of this machine's processes.

    Raises ConfigError and CommError as `open_socket` does.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        keys: SeedKeys | None = None,
        credit: int = 2,
        welcome: Callable[[], Mapping[str, Any] | None] = dict,
        check: Callable[[Segment], None] | None = None,
        max_waiting: int | None = None,
        own_names: Collection[str] = (),
        copies_rows: bool = True,
    ) -> None:
        self.session = secrets.token_hex(8)  # sources say hello again to a driver of another session
        self._welcome = welcome
        self._check = RowSchema() if check is None else check
        self._copies_rows = copies_rows
        self._book = RowBook(
            session=self.session,
            credit=credit,
            max_waiting=max_waiting,
            clock=time.monotonic,
            owners=dict.fromkeys(own_names, "" if keys is None else keys.own.public),
        )
        self._changed = threading.Condition()  # guards all that follows, and the book
        self._outbox: list[Reply] = []
        self._is_closed = False
        self._failure: BaseException | None = None
        self._num_told = 0  # errors and replacements that `take` has returned for
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
        """Return how all sources stand that have joined, by name. Raises CommError if the server has failed."""
        with self._changed:
            self._raise_failure()
            return self._book.states()

    def wait_for_sources(self, number: int, timeout_s: float, *, role: str = "actor") -> bool:
        """Wait until so many sources of a role have joined, for at most `timeout_s`; tell whether they have."""
        with self._changed:
            return self._changed.wait_for(lambda: self._failure is not None or self._num_of(role) >= number, timeout_s)

    def _num_of(self, role: str) -> int:
        return sum(state.role == role for state in self._book.states().values())

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

        None: the source has not joined, or has as many orders as its credit, or all together have as many as may wait.
        Raises CommError for an `extra` that is no JSON, and if the server has failed.
        """
        with self._changed:
            self._raise_failure()
            given = self._book.give(source, rows, env_step=env_step, newest=newest, extra=extra or {})
            if given is None:
                return None
            self._send([given[1]])
            return given[0]

    def open_rows(self, sources: Sequence[str]) -> int:
        """Return the rows that these sources were ordered and have not handed over."""
        with self._changed:
            return self._book.open_rows(sources)

    def use_statistics(self, arrays: Mapping[str, Array]) -> None:
        """Send copies of arrays, what the envs' wrappers go by, with the next order to each source."""
        with self._changed:
            self._book.use_statistics(arrays)

    # --- rows

    def take(self, timeout_s: float) -> list[Arrived]:
        """Return the segments that came since, in the order in which they did; wait for at most `timeout_s`.

        It returns at once, empty perhaps, when a source has reported an error or came back in place of an earlier run.
        Raises CommError if the server has failed.
        """
        with self._changed:
            self._changed.wait_for(self._has_news, timeout_s)
            self._raise_failure()
            self._num_told = self._num_tidings
            return self._book.take_arrived()

    def _has_news(self) -> bool:
        book = self._book
        return bool(book.arrived) or self._num_tidings > self._num_told or self._failure is not None or self._is_closed

    @property
    def _num_tidings(self) -> int:
        return self._book.num_errors + self._book.num_replaced

    def acknowledge(self, arrived: Arrived) -> None:
        """Let the source forget a segment, whose rows are where they are kept."""
        with self._changed:
            reply = self._book.acknowledge(arrived)
            if reply is not None:
                self._send([reply])

    @property
    def queue_depth(self) -> int:
        """Return the segments that came and are not acknowledged."""
        with self._changed:
            return self._book.num_waiting

    @property
    def counts(self) -> Counts:
        """Return the counts of what came."""
        with self._changed:
            return self._book.counts

    # --- what is said beside

    def stats(self, name: str) -> dict[str, Any]:
        """Return the newest numbers that a source has sent, empty before."""
        with self._changed:
            return self._book.stats(name)

    def errors(self) -> list[ReportedError]:
        """Return the failures that sources have reported since, each once."""
        with self._changed:
            return self._book.take_errors()

    def stop_all(self) -> None:
        """Tell all sources, and those that join later, that nothing is wanted any more."""
        with self._changed:
            self._send(self._book.stop_all())

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

    def _send(self, replies: Sequence[Reply]) -> None:
        self._outbox.extend(replies)
        self._wake.wake()

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
        """Send what there is; tell whether to go on."""
        with self._changed:
            replies, self._outbox = self._outbox, []
            goes_on = not self._is_closed
        for reply in replies:
            # What is not taken is asked for by its source, once it can be reached again.
            if not self._socket.send([reply.route, *reply.frames]):
                with self._changed:
                    self._book.note_unreachable(reply.route)
        return goes_on

    def _take_in(self, route: bytes, key: str, frames: Sequence[Frame]) -> None:
        try:
            message = decode(frames, max_nbytes=MAX_NBYTES)
            replies = self._join(message, route, key) if message.kind == "hello" else self._answer(message, route)
        except CommError as error:
            with self._changed:
                is_first = not self._book.counts.garbled
                self._book.count("garbled")
            if is_first:  # whoever sends more of them is not to fill the disk
                _logger.warning("a message to the driver is dropped, as others like it will be: %s", error)
            return
        with self._changed:
            self._outbox.extend(replies)
            self._changed.notify_all()

    def _join(self, message: Message, route: bytes, key: str) -> list[Reply]:
        hello, welcome = hello_of(message.head), self._welcome()
        if welcome is None:  # whoever gets no answer says hello again
            return []
        with self._changed:
            replies = [self._book.join(hello, route, welcome, key)]
            if self._book.is_stopping:
                replies += self._book.stop_all()
            return replies

    def _answer(self, message: Message, route: bytes) -> list[Reply]:
        head, sender = message.head, sender_of(message.head)
        with self._changed:
            source = self._book.find(sender, route)
            if source is None:
                return [self._book.unknown(sender, route)]
            if message.kind == "ask":
                return self._book.asked(source, count_of(head, "have"), counts_of(head, "waiting"))
            if message.kind == "stats":
                self._book.note_stats(source, plain_of(head, "stats"))
                return []
            if message.kind == "error":
                return [self._book.note_error(source, text_of(head, "text"))]
        if message.kind != "segment":
            raise CommError(f"a message of kind {message.kind[:80]!r} is none that the driver takes.")
        return [self._take_segment(source, message)]

    def _take_segment(self, source: Any, message: Message) -> Reply:  # Any: what the book knows of a source
        """Take in a segment that is the next of its source; only this thread does, so that it is so to the end."""
        book, seq, order = self._book, count_of(message.head, "seq"), count_of(message.head, "order")
        with self._changed:
            answer = book.sort_out(source, seq, order)
        if answer is not None:
            return answer
        try:
            segment = segment_of(message.head, message.arrays, copies_rows=self._copies_rows)
            self._check(segment)
        except (DingError, ValueError, TypeError, OverflowError) as error:  # of numbers that nobody thought of
            with self._changed:
                reason = str(error)[:MAX_TEXT]
                book.note_error(source, f"segment {seq} of it was refused: {reason}")
                return book.refuse(source, seq, order, reason)
        with self._changed:
            return book.accept(source, seq, order, segment)
