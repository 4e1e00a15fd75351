"""Send a learner's weights over ZeroMQ: readers ask, and are answered once as soon as there is something newer.

A reader says which versions it has, and with that asks for the next. So one message a reader is under way at a time,
it is the newest there is when it is sent, and a publisher knows who has what. PUB and SUB would not do: to a subscriber
that is slow, PUB drops the newest messages and not the oldest ones, and does not know what has arrived.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ding_like.comm.channels import Receipt, Version, Weights
from ding_like.comm.weights.encode import Encoded, WireDtype, encode
from ding_like.comm.weights.extract import state_of
from ding_like.comm.weights.newest import NewestWeights
from ding_like.comm.zmq.frames import MAX_HEAD_NBYTES, Frame
from ding_like.comm.zmq.frames import encode as encode_message
from ding_like.comm.zmq.sockets import Poller, Socket, Wake, open_socket, tcp_endpoint
from ding_like.comm.zmq.weight_messages import MAX_NAME, PROBE, Ask, pack, unpack
from ding_like.errors import CommError

if TYPE_CHECKING:
    from ding_like.comm.zmq.keys import SeedKeys

logger = logging.getLogger(__name__)

POLICY_ID = "policy"  # of what `Broadcaster.snapshot` publishes
ASK_AGAIN_S = 1.0  # a reader that hears nothing asks again: its publisher may be another by now
_SILENT_S = 5.0  # a reader that has not asked again for so long is not waited for
_FORGET_S = 60.0  # and after so long is forgotten, until it asks
_PROBE_S = 0.2  # between two looks for those that have gone, meanwhile
_CLOSE_S = 2.0  # for readers to take the last version
_JOIN_S = 5.0  # for a thread to end that has been told to
_MAX_READERS = 4_096
_AT_ONCE = 1_000  # messages that are read before anything is sent
_HWM = 4  # messages: more than one that is under way are calls to wake a lost connection


class Broadcaster:
    """Publish weights to all readers that connect; see `WeightPublisher`. Threads may share it.

    A reader that joins gets the newest weights at once, also those that were published before `start`. `endpoint` is
    by default a free port of the loopback address; `dtype` is that of `Layout.of`.

    With a `model` (see `extract.state_of`) its owner calls `snapshot` between two updates, and the weights go out if
    `period` seconds have passed since the last ones did. Nothing reads the model at any other time: while an optimizer
    steps, half of it is of another version.
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
        self._model = model
        self._period_s = period
        self._dtype: WireDtype = dtype
        self._given = tcp_endpoint("127.0.0.1") if endpoint is None else endpoint
        self._keys = keys
        self._changed = threading.Condition()
        self._published: dict[str, _Published] = {}  # the newest of each policy
        self._readers: dict[bytes, _Reader] = {}  # by the name of their connection
        self._published_s = -float("inf")
        self._num_snapshots = 0
        self._num_garbled = 0
        self._is_closing = self._is_closed = False
        self._failure: BaseException | None = None
        self._wake: Wake | None = None
        self._socket: Socket | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> int:
        """Bind the endpoint and return its port, 0 for ipc; with a model, publish it at once.

        Raises CommError where the address cannot be used.
        """
        if self._socket is not None or self._is_closed:
            raise CommError("a broadcaster is started once; make another one.")
        self._socket = open_socket(
            "router", bind=self._given, keys=self._keys, hwm=_HWM, max_frame_nbytes=MAX_HEAD_NBYTES
        )  # readers ask, and send no arrays
        self._wake = Wake()
        self._thread = threading.Thread(target=self._run, name="broadcast", daemon=True)
        self._thread.start()
        if self._model is not None:
            self.snapshot()
        transport, _, address = self.endpoint.partition("://")
        return int(address.rpartition(":")[2]) if transport == "tcp" else 0

    @property
    def endpoint(self) -> str:
        """Return where readers connect to; before `start`, as it was given."""
        return self._given if self._socket is None else self._socket.endpoint

    # --- publishing

    def publish(self, weights: Weights, *, to: Sequence[str] | None = None, wait_s: float | None = None) -> Receipt:
        """Send weights to readers, or wait until they have them; see `WeightPublisher`.

        With `wait_s`, those that are there now are waited for. Readers that are not in `to` keep their version, also
        those that join later. Raises CommError for tensors that cannot be sent.
        """
        with self._changed:
            self._check()
            before = self._published.get(weights.policy_id)
            if before is not None and weights.version <= before.version:
                return Receipt(skipped=tuple(self._names() if to is None else to))
            self._published[weights.policy_id] = _Published(weights, self._dtype, to)
            self._published_s = time.monotonic()
            if self._wake is not None:
                self._wake.wake()
            awaited = self._names() if to is None else tuple(dict.fromkeys(to))
            if wait_s is None:
                return Receipt(failed=tuple(name for name in awaited if name not in self._names()))
            self._changed.wait_for(lambda: self._all_have(awaited, weights), wait_s)
            delivered = tuple(name for name in awaited if self._has(name, weights))
            return Receipt(delivered, tuple(name for name in awaited if name not in delivered))

    @property
    def is_due(self) -> bool:
        """Tell whether the period since the last weights were published has passed."""
        return time.monotonic() - self._published_s >= self._period_s

    def snapshot(self, version: Version | None = None) -> bool:
        """Publish the model if the period has passed, and tell whether it was.

        Its owner calls this between two updates. Versions count the snapshots unless one is given.
        """
        if self._model is None:
            raise CommError("a broadcaster without a model has nothing to take a snapshot of; publish weights.")
        if not self.is_due:
            return False
        own = Version(0, self._num_snapshots) if version is None else version
        self._num_snapshots += 1
        return not self.publish(Weights(POLICY_ID, own, state_of(self._model))).skipped

    # --- readers

    @property
    def readers(self) -> dict[str, dict[str, Version]]:
        """Return the versions that each reader has, by policy; those that have been silent for 5 s are left out."""
        with self._changed:
            living = self._names()
            return {reader.name: dict(reader.has) for reader in self._readers.values() if reader.name in living}

    def wait_for_readers(self, number: int, timeout_s: float) -> bool:
        """Wait until so many readers are connected; tell whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._names()) >= number, timeout_s)

    @property
    def num_garbled(self) -> int:
        """Return how many messages came that no reader sends."""
        return self._num_garbled

    def close(self) -> None:
        """Give readers a moment to take the last version, and release resources; may be called again."""
        with self._changed:
            if self._is_closed:
                return
            if self._thread is not None and self._wake is not None and self._failure is None:
                self._is_closing = True
                self._wake.wake()
                self._changed.wait_for(self._is_idle, _CLOSE_S)
            self._is_closed = True
        if self._thread is not None and self._wake is not None and self._socket is not None:
            self._wake.wake()
            self._thread.join(_JOIN_S)
            self._wake.close()
            self._socket.close()

    def __enter__(self) -> Broadcaster:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- under the condition

    def _check(self) -> None:
        if self._is_closed:
            raise CommError("weights are published after the broadcaster was closed.")
        if self._failure is not None:
            raise CommError(f"weights cannot be sent any more: {self._failure}") from self._failure

    def _names(self) -> tuple[str, ...]:
        now = time.monotonic()
        living = (reader.name for reader in self._readers.values() if now - reader.heard_s < _SILENT_S)
        return tuple(dict.fromkeys(living))

    def _has(self, name: str, weights: Weights) -> bool:
        """Tell whether a reader has weights, or newer ones that were published meanwhile."""
        found = [each.has.get(weights.policy_id) for each in self._readers.values() if each.name == name]
        return any(version is not None and version >= weights.version for version in found)

    def _all_have(self, names: Iterable[str], weights: Weights) -> bool:
        return self._is_closed or all(self._has(name, weights) for name in names)

    def _is_idle(self) -> bool:
        """Tell whether no reader that lives is still to be sent something, or to say that it has come."""
        now = time.monotonic()
        living = (each for each in self._readers.values() if now - each.heard_s < _SILENT_S)
        return all(self._lacking(each) is None for each in living)

    def _lacking(self, reader: _Reader) -> _Published | None:
        for policy_id, published in self._published.items():
            has = reader.has.get(policy_id)
            if (has is None or has < published.version) and (published.to is None or reader.name in published.to):
                return published
        return None

    # --- the thread's side

    def _run(self) -> None:
        assert self._socket is not None and self._wake is not None
        poller = Poller(self._socket, self._wake)
        try:
            while not self._is_closed:
                poller.wait(_PROBE_S if self._is_closing else _SILENT_S)
                with self._changed:
                    self._hear(self._socket)
                    if self._is_closing:
                        self._find_living(self._socket)
                    due = [(name, found) for name, reader in self._readers.items() if (found := self._due(reader))]
                # Outside: a copy of large weights takes a while, in which the learner may publish others.
                for name, published in due:
                    self._send(self._socket, name, published)
        except BaseException as error:  # any error of this thread is raised by `publish`
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _find_living(self, socket: Socket) -> None:
        """Forget readers that have gone without taking what they were sent: nobody is to wait for them."""
        for name in [name for name, reader in self._readers.items() if not reader.is_asking]:
            if not socket.send([name, *encode_message(PROBE)]):
                del self._readers[name]
        self._changed.notify_all()

    def _hear(self, socket: Socket) -> None:
        now = time.monotonic()
        for _ in range(_AT_ONCE):
            frames = socket.receive()
            if frames is None:
                break
            try:
                ask = Ask.parse(frames[1:])
            except CommError as error:
                self._num_garbled += 1
                logger.debug("a reader of weights sent what is no question: %s", error)
                continue
            self._note(bytes(frames[0]), ask, now)
        for name in [name for name, reader in self._readers.items() if now - reader.heard_s > _FORGET_S]:
            del self._readers[name]
        self._changed.notify_all()

    def _note(self, connection: bytes, ask: Ask, now: float) -> None:
        reader = self._readers.get(connection)
        if reader is None:
            # Who connects again under its name has lost its old connection.
            for each in [each for each, old in self._readers.items() if old.name == ask.name]:
                del self._readers[each]
            if len(self._readers) >= _MAX_READERS:
                del self._readers[min(self._readers, key=lambda each: self._readers[each].heard_s)]
            reader = self._readers[connection] = _Reader(ask.name)
        reader.heard_s = now
        if ask.number > reader.number:
            reader.number, reader.has, reader.is_asking = ask.number, ask.has, True

    def _due(self, reader: _Reader) -> _Published | None:
        return self._lacking(reader) if reader.is_asking else None

    def _send(self, socket: Socket, connection: bytes, published: _Published) -> None:
        taken = socket.send([connection, *published.frames()])
        with self._changed:
            if taken:
                self._readers[connection].is_asking = False
            else:  # it has gone; if it has not, it asks again
                del self._readers[connection]


class WeightSocket:
    """Receive weights from a `Broadcaster` in a loop of the owner's, without a thread; one thread uses it.

    The owner polls `socket`, and calls `take` when it is readable and at least every ASK_AGAIN_S seconds, by which a
    publisher that was started again hears of this reader. `name` is the reader's in receipts, unique among the readers.
    """

    def __init__(self, endpoint: str, *, name: str, keys: SeedKeys | None = None) -> None:
        if not 0 < len(name) <= MAX_NAME:
            raise CommError(f"a reader of weights has the name {name[:80]!r}; expected 1 to {MAX_NAME} characters.")
        self.num_refused = 0  # messages that hold no weights, or not all of them
        self._name = name
        self._has: dict[str, Version] = {}
        self._number = 0
        self._asked_s = 0.0
        self._socket = open_socket("dealer", connect=endpoint, keys=keys, hwm=_HWM)
        self._poller = Poller(self._socket)
        self._ask()

    @property
    def socket(self) -> Socket:
        """Return what to poll."""
        return self._socket

    def take(self) -> Weights | None:
        """Return newer weights if some have come, and ask for the next; never waits.

        Their tensors are in memory of this process. What is garbled is dropped, counted, and asked for again.
        """
        while (frames := self._socket.receive()) is not None:
            try:
                weights = unpack(frames)
            except CommError as error:
                self.num_refused += 1
                self._number += 1  # with the next question, which waits: what comes may be as garbled as this
                logger.warning("weights that came are dropped: %s", error)
                continue
            has = None if weights is None else self._has.get(weights.policy_id)
            if weights is None or (has is not None and weights.version <= has):
                continue  # of two publishers after one another, or asked for twice
            self._has[weights.policy_id] = weights.version
            self._number += 1
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
        self._socket.close()

    def __enter__(self) -> WeightSocket:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _ask(self) -> None:
        self._asked_s = time.monotonic()
        # Not taken where the publisher has been away for long: then older questions wait for it.
        self._socket.send(Ask(self._name, self._number + 1, self._has).frames())


class ZmqWeightReader:
    """Receive weights from a `Broadcaster` in a thread of its own; see `WeightReader`. Threads may share it.

    The publisher may start later, and may be replaced. `name` is the reader's in receipts, unique among the readers.
    """

    def __init__(self, endpoint: str, *, name: str, keys: SeedKeys | None = None) -> None:
        self._received = NewestWeights()
        self._is_closed = False
        self._socket = WeightSocket(endpoint, name=name, keys=keys)
        self._wake = Wake()
        self._thread = threading.Thread(target=self._run, name="weights", daemon=True)
        self._thread.start()

    def newest(self, policy_id: str, *, newer_than: Version | None = None, timeout_s: float = 0.0) -> Weights | None:
        """Return the newest weights of a policy; see `WeightReader`. Raises CommError once it is closed."""
        return self._received.newest(policy_id, newer_than=newer_than, timeout_s=timeout_s)

    @property
    def num_refused(self) -> int:
        """Return how many messages came that hold no weights, or not all of them."""
        return self._socket.num_refused

    def close(self) -> None:
        """Receive no more and release resources; may be called again."""
        if self._is_closed:
            return
        self._is_closed = True
        self._received.fail(CommError("the reader was closed."))
        self._wake.wake()
        self._thread.join(_JOIN_S)
        self._wake.close()
        self._socket.close()

    def __enter__(self) -> ZmqWeightReader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _run(self) -> None:
        poller = Poller(self._socket.socket, self._wake)
        try:
            while not self._is_closed:
                weights = self._socket.take()
                if weights is not None:
                    self._received.put(weights)
                else:
                    poller.wait(ASK_AGAIN_S)
        except CommError as error:
            self._received.fail(error)


class _Reader:
    """Hold what is known of a reader."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = 0  # of its last question
        self.has: dict[str, Version] = {}
        self.is_asking = False  # a question of it is not answered yet
        self.heard_s = 0.0


class _Published:
    """Hold weights that were published, and for whom; the thread that sends them makes the message of them."""

    def __init__(self, weights: Weights, dtype: WireDtype, to: Sequence[str] | None) -> None:
        self.version = weights.version
        self.to = None if to is None else frozenset(to)
        self._encoded: Encoded | None = encode(weights, dtype=dtype)
        self._frames: list[Frame] = []

    def frames(self) -> list[Frame]:
        if self._encoded is not None:
            self._frames, self._encoded = pack(self._encoded), None
        return self._frames
