"""Take requests of inference clients and answer each once, an inference server's end of the way.

A client's request may come again: because its answer was lost, or because the proxy thought that another server was.
What was answered is answered alike, and what is being worked on is not begun twice. Behind the proxy, the server says
hello when it can work, shows that it is alive, and says goodbye.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ding_like.comm.zmq.frames import Frame, decode
from ding_like.comm.zmq.inference_messages import (
    MAX_NBYTES,
    Refusal,
    Reply,
    Request,
    decode_request,
    encode_refusal,
    encode_reply,
    encode_unknown,
)
from ding_like.comm.zmq.proxy import BEAT, BEAT_S, BYE, HELLO
from ding_like.comm.zmq.sockets import open_socket
from ding_like.errors import CommError

if TYPE_CHECKING:
    from ding_like.comm.zmq.keys import SeedKeys

MAX_CLIENTS = 4_096
_HWM = 2 * MAX_CLIENTS  # messages: each client has one request under way, and may have sent it again


@dataclass
class _Client:
    """Hold what is known of a client: where answers go, what is being worked on, and what was answered last."""

    run_id: int
    address: bytes
    heard_s: float
    pending: int | None = None
    last_id: int = -1
    last: list[Frame] | None = None


class RequestSocket:
    """Receive requests behind a proxy, whose side of the servers is `endpoint`; `name` is new with every start.

    Clients that have said nothing for `forget_s` are forgotten. One thread uses it; while that computes, within
    `computing`, another shows the proxy that the server is alive.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        name: str,
        keys: SeedKeys | None = None,
        forget_s: float = 600.0,
        max_nbytes: int = MAX_NBYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.num_garbled = self.num_repeated = 0  # requests that could not be read, and that came again
        self._forget_s, self._max_nbytes = forget_s, max_nbytes
        self._clock = clock
        self._clients: dict[str, _Client] = {}
        self._beaten_s = -math.inf
        self._ended = threading.Event()
        self._own = threading.Lock()  # held by the thread that may use the socket
        self.socket = open_socket("dealer", connect=endpoint, keys=keys, identity=name, hwm=_HWM)
        self._own.acquire()
        self._beating = threading.Thread(target=self._beat_beside, name=f"{name} beat", daemon=True)
        self._beating.start()

    # --- the proxy

    def hello(self) -> None:
        """Say that requests may come."""
        self._tell(HELLO)

    def beat(self) -> None:
        """Show that the server is alive, where it is time to; whoever serves calls this in each turn."""
        if self._clock() - self._beaten_s >= BEAT_S:
            self._tell(BEAT)

    def bye(self) -> None:
        """Say that no more requests may come; those that came are still answered."""
        self._tell(BYE)

    def _tell(self, word: bytes) -> None:
        self._beaten_s = self._clock()
        self.socket.send([b"", word])

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Leave the socket alone within: a batch may take longer than the proxy waits for a sign of life."""
        self._own.release()
        try:
            yield
        finally:
            self._own.acquire()

    def _beat_beside(self) -> None:
        while not self._ended.wait(BEAT_S):
            if self._own.acquire(blocking=False):
                try:
                    self.beat()
                finally:
                    self._own.release()

    # --- requests

    def receive(self) -> list[Request]:
        """Return the requests that have come, the oldest first, without waiting; repeated ones are seen to."""
        found = []
        while (frames := self.socket.receive()) is not None:
            address = bytes(frames[0])
            if address and len(frames) > 1:
                request = self._take(address, frames[1:])
                if request is not None:
                    found.append(request)
        return found

    def _take(self, address: bytes, frames: list[memoryview]) -> Request | None:
        try:
            request = decode_request(frames, max_nbytes=self._max_nbytes)
        except CommError as error:
            self.num_garbled += 1
            self._send(address, encode_refusal(_id_of(frames), Refusal(str(error), is_final=True)))
            return None
        client = self._client(request, address)
        if client is None:
            return None
        if request.id == client.last_id and client.last is not None:
            self.num_repeated += 1
            self._send(address, client.last)
            return None
        if request.id <= client.last_id or request.id == client.pending:
            self.num_repeated += 1  # answered long ago, or about to be
            return None
        client.pending = request.id
        return request

    def _client(self, request: Request, address: bytes) -> _Client | None:
        """Return what is known of a request's client; None: the request is refused."""
        client = self._clients.get(request.client)
        if client is None or client.run_id < request.run_id:
            if client is None and len(self._clients) >= MAX_CLIENTS:
                text = f"{self.name} serves {MAX_CLIENTS:,} clients, no more; start another server."
                self._send(address, encode_refusal(request.id, Refusal(text, is_final=False)))
                return None
            client = self._clients[request.client] = _Client(request.run_id, address, self._clock())
        elif client.run_id > request.run_id:
            text = f"a newer run of {request.client} is at work: {client.run_id}, and this is {request.run_id}."
            self._send(address, encode_refusal(request.id, Refusal(text, is_final=True)))
            return None
        client.address, client.heard_s = address, self._clock()
        return client

    def is_wanted(self, request: Request) -> bool:
        """Tell whether a client still waits for the answer to a request."""
        client = self._clients.get(request.client)
        return client is not None and client.run_id == request.run_id and client.pending == request.id

    def answer(self, request: Request, answer: Reply | Refusal | None) -> None:
        """Send the answer to a request; None asks for the recurrent state that it goes on from."""
        if not self.is_wanted(request):
            return
        client = self._clients[request.client]
        client.pending = None
        if isinstance(answer, Reply):
            client.last_id, client.last = request.id, encode_reply(request.id, answer, server=self.name)
            self._send(client.address, client.last)
        elif answer is None:
            self._send(client.address, encode_unknown(request.id))
        else:
            self._send(client.address, encode_refusal(request.id, answer))

    def _send(self, address: bytes, frames: list[Frame]) -> None:
        self.socket.send([address, *frames])  # what is not taken is asked for again

    @property
    def num_clients(self) -> int:
        """Return how many clients are known."""
        return len(self._clients)

    def forget(self) -> list[str]:
        """Forget clients that have said nothing for long; return their names."""
        oldest_s = self._clock() - self._forget_s
        gone = [name for name, client in self._clients.items() if client.heard_s < oldest_s]
        for name in gone:
            del self._clients[name]
        return gone

    def close(self) -> None:
        """Close the socket, with what was not sent; may be called again."""
        self._ended.set()
        self._beating.join()
        self.socket.close()


def _id_of(frames: list[memoryview]) -> int | None:
    """Return the id of a request that is wrong otherwise; None where it has none."""
    try:
        number = decode(frames, max_nbytes=MAX_NBYTES).head.get("id")
    except CommError:
        return None
    return number if isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 2**53 else None
