"""Publish a learner's weights over ZeroMQ: a reader asks, and is answered once as soon as there is something newer.

One message a reader is under way at a time, and it is the newest there is when it is sent. PUB and SUB would not do: to
a subscriber that is slow PUB drops the newest messages, and one that joins late waits for the next.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ding_like.comm.channels import Version, Weights
from ding_like.comm.json_fields import count_of
from ding_like.comm.json_version import version_of
from ding_like.comm.weights.encode import MAX_NBYTES, Encoded, WireDtype, encode
from ding_like.comm.weights.encode import decode as decode_weights
from ding_like.comm.weights.extract import state_of
from ding_like.comm.zmq import frames as messages
from ding_like.comm.zmq.frames import MAX_HEAD_NBYTES
from ding_like.comm.zmq.sockets import Poller, Socket, Wake, open_socket, port_of, tcp_endpoint
from ding_like.errors import CommError

if TYPE_CHECKING:
    from ding_like.comm.zmq.keys import SeedKeys

logger = logging.getLogger(__name__)

POLICY_ID = "policy"
ASK_AGAIN_S = 1.0  # a reader that hears nothing asks again: its publisher may be another by now
_JOIN_S = 5.0
_MAX_READERS = 4_096
_AT_ONCE = 1_000  # messages that are read before anything is sent
_HWM = 4  # messages: more than one that is under way are calls to wake a lost connection


@dataclass
class _Reader:
    """What a reader asked last."""

    number: int = 0  # of the question, counted by the reader
    has: Version | None = None
    is_asking: bool = False


class Broadcaster:
    """Publisher of the newest weights to all readers that connect, late ones included. Threads may share it.

    `endpoint` is by default a free port of the loopback address; `dtype` is that of `Layout.of`. With a `model` (see
    `extract.state_of`) its owner calls `snapshot` between two updates, and the weights go out if `period` seconds have
    passed since the last ones did: while an optimizer steps, half of the model is of another version.
    """

    def __init__(
        self,
        model: Any = None,  # Any: see `extract.state_of`
        period: float = 0.0,
        *,
        endpoint: str | None = None,
        keys: SeedKeys | None = None,
        dtype: WireDtype = "exact",
    ) -> None:
        if not 0 <= period < float("inf"):
            raise CommError(f"the period of a broadcast is {period!r}; expected 0 seconds or more.")
        self.endpoint = endpoint or tcp_endpoint("127.0.0.1")
        self.num_garbled = 0  # messages that no reader sends
        self._model, self._period_s = model, period
        self._keys, self._dtype = keys, dtype
        self._lock = threading.Lock()  # guards the next three
        self._version: Version | None = None  # of the newest weights
        self._encoded: Encoded | None = None
        self._failure: BaseException | None = None
        self._published_s = -float("inf")
        self._num_snapshots = 0
        self._readers: dict[bytes, _Reader] = {}  # by connection; the thread's own
        self._is_closed = False
        self._wake: Wake | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> int:
        """Bind the endpoint and return its port, 0 for ipc; publish the model, if there is one.

        Raises CommError where the address cannot be used.
        """
        if self._thread is not None or self._is_closed:
            raise CommError("a broadcaster is started once; make another one.")
        socket = open_socket("router", bind=self.endpoint, keys=self._keys, hwm=_HWM, max_frame_nbytes=MAX_HEAD_NBYTES)
        self.endpoint, self._wake = socket.endpoint, Wake()
        self._thread = threading.Thread(target=self._run, args=(socket, self._wake), name="broadcast", daemon=True)
        self._thread.start()
        if self._model is not None:
            self.snapshot()
        return port_of(self.endpoint)

    def publish(self, weights: Weights) -> bool:
        """Send weights to all readers that are there or join later; False: they are not newer than the last ones.

        The caller may change its tensors afterwards. Raises CommError for tensors that cannot be sent, and if nothing
        can be sent any more.
        """
        with self._lock:
            if self._is_closed or self._failure is not None:
                raise CommError(f"weights cannot be sent: {self._failure or 'the broadcaster was closed'}")
            if self._version is not None and weights.version <= self._version:
                return False
            self._version, self._encoded = weights.version, encode(weights, dtype=self._dtype)
            self._published_s = time.monotonic()
        if self._wake is not None:
            self._wake.wake()
        return True

    @property
    def is_due(self) -> bool:
        """Whether the period since the last weights were published has passed."""
        return time.monotonic() - self._published_s >= self._period_s

    def snapshot(self, version: Version | None = None) -> bool:
        """Publish the model if the period has passed; return whether it was.

        The model's owner calls this between two updates. Versions count the snapshots unless one is given.
        """
        if self._model is None:
            raise CommError("a broadcaster without a model has nothing to take a snapshot of; publish weights.")
        if not self.is_due:
            return False
        own = Version(0, self._num_snapshots) if version is None else version
        self._num_snapshots += 1
        return self.publish(Weights(POLICY_ID, own, state_of(self._model)))

    def close(self) -> None:
        """End the thread and close the socket; what was not sent is dropped. May be called again."""
        self._is_closed = True
        if self._wake is not None and self._thread is not None:
            self._wake.wake()
            self._thread.join(_JOIN_S)
            self._wake.close()

    def __enter__(self) -> Broadcaster:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- the thread's side

    def _run(self, socket: Socket, wake: Wake) -> None:
        poller = Poller(socket, wake)
        try:
            while not self._is_closed:
                poller.wait(ASK_AGAIN_S)
                self._hear(socket)
                self._answer(socket)
        except BaseException as error:  # any error of this thread is raised by `publish`
            with self._lock:
                self._failure = error
        finally:
            socket.close()

    def _hear(self, socket: Socket) -> None:
        for _ in range(_AT_ONCE):
            frames = socket.receive()
            if frames is None:
                return
            try:
                head = messages.decode(frames[1:], max_nbytes=0).head
                number, has = count_of(head, "number"), None if head.get("has") is None else version_of(head, "has")
            except CommError as error:
                self.num_garbled += 1
                logger.debug("a reader of weights sent what is no question: %s", error)
                continue
            if len(self._readers) >= _MAX_READERS:
                self._readers.pop(next(iter(self._readers)))
            reader = self._readers.setdefault(bytes(frames[0]), _Reader())
            if number > reader.number:
                reader.number, reader.has, reader.is_asking = number, has, True

    def _answer(self, socket: Socket) -> None:
        with self._lock:
            version, encoded = self._version, self._encoded
        asking = [name for name, each in self._readers.items() if each.is_asking and _is_newer(version, each.has)]
        if not asking or encoded is None:
            return
        # Outside of the lock: a copy of large weights takes a while, in which the learner may publish others.
        frames = messages.encode({"kind": "weights", "weights": encoded.head}, {"body": encoded.body})
        for name in asking:
            if socket.send([name, *frames]):
                self._readers[name].is_asking = False
            else:  # it is gone; if it is not, it asks again
                del self._readers[name]


class WeightSocket:
    """Reader of a `Broadcaster`'s weights in a loop of the owner's, without a thread; one thread uses it.

    The owner polls `socket`, and calls `take` when it is readable and at least every ASK_AGAIN_S seconds, by which a
    publisher that was started again hears of this reader.
    """

    def __init__(self, endpoint: str, *, keys: SeedKeys | None = None) -> None:
        self.num_refused = 0  # messages that hold no weights
        self.socket = open_socket("dealer", connect=endpoint, keys=keys, hwm=_HWM)
        self._has: Version | None = None
        self._number = 0  # of messages that were received
        self._poller = Poller(self.socket)
        self._ask()

    def take(self) -> Weights | None:
        """Return newer weights if some have come, and ask for the next; never waits.

        Their tensors are in memory of this process. What is garbled is dropped, counted, and asked for again.
        """
        while (frames := self.socket.receive()) is not None:
            self._number += 1
            try:
                weights = _unpack(frames)
            except CommError as error:
                self.num_refused += 1
                logger.warning("weights that came are dropped: %s", error)
                continue  # asked for in a second: what comes may be as garbled as this
            if _is_newer(weights.version, self._has):
                self._has = weights.version
                self._ask()
                return weights
        if time.monotonic() - self._asked_s >= ASK_AGAIN_S:
            self._ask()
        return None

    def wait(self, timeout_s: float) -> Weights | None:
        """Return newer weights as soon as they come, None if none do within `timeout_s`."""
        deadline_s = time.monotonic() + timeout_s
        while (weights := self.take()) is None and (left_s := deadline_s - time.monotonic()) > 0:
            self._poller.wait(min(left_s, ASK_AGAIN_S))
        return weights

    def close(self) -> None:
        """Close the socket; may be called again."""
        self.socket.close()

    def _ask(self) -> None:
        self._asked_s = time.monotonic()
        has = None if self._has is None else list(self._has)
        # Not taken where the publisher has been away for long: then older questions wait for it.
        self.socket.send(messages.encode({"kind": "ask", "number": self._number + 1, "has": has}))


def _is_newer(version: Version | None, has: Version | None) -> bool:
    return version is not None and (has is None or version > has)


def _unpack(frames: list[memoryview]) -> Weights:
    message = messages.decode(frames, max_nbytes=MAX_NBYTES)
    body, head = message.arrays.get("body"), message.head.get("weights")
    if message.kind != "weights" or body is None or len(message.arrays) != 1:
        raise CommError(f"a message '{message.kind[:80]}' has {len(message.arrays)} arrays; expected weights.")
    return decode_weights(Encoded(head, body))  # type: ignore[arg-type]  # `decode_weights` checks the head
