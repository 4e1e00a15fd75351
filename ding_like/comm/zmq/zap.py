"""Answer who may connect: a thread that ZeroMQ asks at each handshake, while sockets of this process admit clients.

The thread is there from the first `admit` to the last release. Source: RFC 27 of ZeroMQ (ZAP).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from ding_like.comm.zmq.library import load_zmq, z85_of
from ding_like.comm.zmq.sockets import Poller, Socket, Wake, own_context
from ding_like.errors import CommError

logger = logging.getLogger(__name__)

# Tells whether the client with a public key, as Z85, may connect.
IsAdmitted: TypeAlias = Callable[[str], bool]

_ENDPOINT = "inproc://zeromq.zap.01"  # by RFC 27
_WAIT_S = 60.0
_JOIN_S = 10.0
_MAX_TOLD = 100  # strangers who are named in the log, each once

_lock = threading.Lock()
_gate: _Gate | None = None


def admit(domain: str, is_admitted: IsAdmitted) -> Callable[[], None]:
    """Ask `is_admitted` who may connect to sockets of a domain; return what ends that, and may be called again.

    Sockets of one domain ask alike: each has an `is_admitted` of the same keys.
    """
    global _gate
    with _lock:
        if _gate is None or not _gate.is_alive:
            _gate = _Gate()
        _gate.add(domain, is_admitted)
    released = threading.Event()

    def release() -> None:
        global _gate
        with _lock:
            if released.is_set():
                return
            released.set()
            if _gate is not None and not _gate.remove(domain):
                _gate.close()
                _gate = None

    return release


class _Gate:
    """Answer ZeroMQ's questions in a thread of its own."""

    def __init__(self) -> None:
        zmq = load_zmq()
        raw = own_context(zmq).socket(zmq.REP)
        raw.linger = 0
        try:
            raw.bind(_ENDPOINT)
        except zmq.ZMQError as error:
            raw.close(0)
            raise CommError(
                f"{_ENDPOINT} is taken in this process's context ({error}): close the other authenticator."
            ) from error
        self._socket = Socket(raw, _ENDPOINT, zmq, lambda: None)
        self._asked: dict[str, list[IsAdmitted]] = {}
        self._told: set[tuple[str, str]] = set()
        self._wake = Wake()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="zmq-authenticator", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def add(self, domain: str, is_admitted: IsAdmitted) -> None:
        self._asked[domain] = [*self._asked.get(domain, ()), is_admitted]

    def remove(self, domain: str) -> bool:
        """Forget one socket of a domain; tell whether any is left."""
        left = self._asked.pop(domain, [])[1:]
        if left:
            self._asked[domain] = left
        return bool(self._asked)

    def close(self) -> None:
        self._closing = True
        self._wake.wake()
        self._thread.join(_JOIN_S)
        if self._thread.is_alive():
            raise CommError(f"the thread that admits clients did not end within {_JOIN_S:g} s.")
        self._wake.close()

    def _run(self) -> None:
        try:
            poller = Poller(self._socket, self._wake)
            while not self._closing:
                poller.wait(_WAIT_S)
                while (request := self._socket.receive()) is not None:
                    self._socket.send(self._answer([bytes(frame) for frame in request]))
        finally:
            # Unbound first: closing frees the name some time later, and the next one may come at once.
            self._socket.raw.unbind(_ENDPOINT)
            self._socket.close()

    def _answer(self, request: list[bytes]) -> list[Any]:  # Any: bytes, as frames are
        version, request_id = [*request[:2], b"", b""][:2]
        code, text, user = b"400", b"refused", b""
        if version == b"1.0" and len(request) == 7 and request[5] == b"CURVE" and len(request[6]) == 32:
            domain, address, key = (
                request[2].decode("ascii", "replace"),
                request[3].decode("ascii", "replace"),
                request[6],
            )
            public = z85_of(key)
            if self._is_admitted(domain, public):
                code, text, user = b"200", b"OK", public.encode()
            else:
                self._tell(address, public)
        return [b"1.0", request_id, code, text, user, b""]

    def _is_admitted(self, domain: str, public: str) -> bool:
        try:
            return any(is_admitted(public) for is_admitted in self._asked.get(domain, ())[:1])
        except Exception:  # a callback may raise anything; the client is refused, the thread goes on
            logger.exception("a client was refused, because its key could not be looked up")
            return False

    def _tell(self, address: str, public: str) -> None:
        """Log a stranger once: one that is refused tries again and again."""
        if (address, public) not in self._told and len(self._told) < _MAX_TOLD:
            self._told.add((address, public))
            logger.warning(
                "%s was refused: its public key %s is not listed in this run's key file", address or "a client", public
            )
