"""Publish a learner's weights over ZeroMQ: a reader asks, and is answered once as soon as there is something newer.

One message a reader is under way at a time, and it is the newest there is when it is sent. PUB and SUB would not do: to
a subscriber that is slow PUB drops the newest messages, and one that joins late waits for the next.
"""

from __future__ import annotations

import logging
import threading
import time

from ding_like.comm.channels import Version, Weights, version_of
from ding_like.comm.keys import SeedKeys
from ding_like.comm.tensors import MAX_NBYTES, Encoded, decode_weights, encode_weights, state_of
from ding_like.comm.zmq.sockets import MAX_HEAD_NBYTES, Poller, Socket, Wake, decode, encode, open_socket, port_of
from ding_like.errors import CommError

logger = logging.getLogger(__name__)

ASK_AGAIN_S = 1.0  # a reader without an answer asks again: its publisher may be another by now
_JOIN_S = 5.0
_HWM = 4  # messages: more than one that is under way are calls to wake a lost connection
_NONE = Version(-1, -1)  # older than all weights


class Broadcaster:
    """Publisher of the newest weights to all readers that connect, late ones included. Threads may share it.

    `endpoint` is by default a free port of the loopback address. With a `model` (see
    `tensors.state_of`) its owner calls `snapshot` between two updates: while an optimizer steps, half of the model is
    of another version. Weights are due when `period` seconds have passed since the last ones were published.
    """

    def __init__(
        self,
        model: object = None,  # see `tensors.state_of`
        period: float = 0.0,
        *,
        endpoint: str | None = None,
        keys: SeedKeys | None = None,
    ) -> None:
        if not 0 <= period < float("inf"):
            raise CommError(f"the period of a broadcast is {period!r}; expected 0 seconds or more.")
        self.endpoint = endpoint or "tcp://127.0.0.1:0"
        self.num_garbled = 0  # messages that no reader sends
        self._model, self._period_s = model, period
        self._keys = keys
        self._lock = threading.Lock()  # guards the next three
        self._version = _NONE  # of the newest weights
        self._encoded: Encoded | None = None
        self._failure: BaseException | None = None
        self._published_s = -float("inf")
        self._num_snapshots = 0
        self._sent: dict[bytes, Version] = {}  # by connection: the version sent last, or that the reader had before
        self._asking: set[bytes] = set()  # connections that have what was sent
        self._is_closed = False
        self._wake = Wake()
        self._thread: threading.Thread | None = None

    def start(self) -> int:
        """Bind the endpoint and return its port, 0 for ipc; publish the model, if there is one.

        Raises CommError where the address cannot be used.
        """
        if self._thread is not None or self._is_closed:
            raise CommError("a broadcaster is started once; make another one.")
        socket = open_socket("router", bind=self.endpoint, keys=self._keys, hwm=_HWM, max_frame_nbytes=MAX_HEAD_NBYTES)
        self.endpoint = socket.endpoint
        self._thread = threading.Thread(target=self._run, args=(socket,), name="broadcast", daemon=True)
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
            if weights.version <= self._version:
                return False
            self._version, self._encoded = weights.version, encode_weights(weights)
            self._published_s = time.monotonic()
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
        version = version or Version(0, self._num_snapshots)
        self._num_snapshots += 1
        return self.publish(Weights("policy", version, state_of(self._model)))

    def close(self) -> None:
        """End the thread and close the socket; what was not sent is dropped. May be called again."""
        self._is_closed = True
        self._wake.wake()
        if self._thread is not None:
            self._thread.join(_JOIN_S)
        self._wake.close()

    def __enter__(self) -> Broadcaster:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- the thread's side

    def _run(self, socket: Socket) -> None:
        poller = Poller(socket, self._wake)
        try:
            while not self._is_closed:
                poller.wait(ASK_AGAIN_S)
                while (frames := socket.receive()) is not None:
                    self._take_question(bytes(frames[0]), frames[1:])
                self._answer(socket)
        except BaseException as error:  # any error of this thread is raised by `publish`
            with self._lock:
                self._failure = error
        finally:
            socket.close()

    def _take_question(self, route: bytes, frames: list[memoryview]) -> None:
        try:
            head = decode(frames, max_nbytes=0).head
            has = _NONE if head.get("has") is None else version_of(head, "has")
        except CommError as error:
            self.num_garbled += 1
            logger.debug("a reader of weights sent what is no question: %s", error)
            return
        # A reader that asks again before what was sent has arrived is not sent it twice.
        if self._sent.setdefault(route, has) == has:
            self._asking.add(route)

    def _answer(self, socket: Socket) -> None:
        with self._lock:
            version, encoded = self._version, self._encoded
        asking = [route for route in self._asking if version > self._sent[route]]
        if not asking or encoded is None:
            return
        # Outside of the lock: a copy of large weights takes a while, in which the learner may publish others.
        frames = encode({"kind": "weights"}, {"body": encoded})
        for route in asking:
            self._asking.discard(route)
            if socket.send([route, *frames]):
                self._sent[route] = version
            else:  # it is gone; if it is not, it asks again
                del self._sent[route]


class WeightSocket:
    """Reader of a `Broadcaster`'s weights in a loop of the owner's, without a thread; one thread uses it.

    The owner polls `socket`, and calls `take` when it is readable and at least every ASK_AGAIN_S seconds, by which a
    publisher that was started again is asked by this reader.
    """

    def __init__(self, endpoint: str, *, keys: SeedKeys | None = None) -> None:
        self.socket = open_socket("dealer", connect=endpoint, keys=keys, hwm=_HWM)
        self._has = _NONE
        self._poller = Poller(self.socket)
        self._ask()

    def take(self) -> Weights | None:
        """Return newer weights if some have come, and ask for the next; never waits.

        Their tensors are in memory of this process. A message that holds no weights is dropped.
        """
        while (frames := self.socket.receive()) is not None:
            try:
                message = decode(frames, max_nbytes=MAX_NBYTES)
                if "body" not in message.arrays:
                    raise CommError(f"a message '{message.kind[:80]}' came where weights do.")
                weights = decode_weights(message.arrays["body"])
            except CommError as error:
                logger.warning("weights that came are dropped: %s", error)
                continue
            if weights.version > self._has:
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
        has = None if self._has == _NONE else list(self._has)
        # Not taken where the publisher has been away for long: then older questions wait for it.
        self.socket.send(encode({"kind": "ask", "has": has}))
