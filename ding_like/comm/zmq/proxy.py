"""Pass requests of clients to inference servers and their replies back, whichever of them come and go.

Both ends are ROUTER sockets. A client is a DEALER with an identity that it keeps when it connects again, NAME.NUMBER
say; it has one request at a time under way, of 1 to MAX_FRAMES frames. A server is a DEALER with an identity that no
server had before it. It receives and sends [client's identity][frame]...; with an empty identity it is a word to or
from the proxy.

| word | from | meaning |
|---|---|---|
| hello | server | it takes requests |
| beat | server | it lives, and takes requests: a proxy that was started again knows it by this |
| bye | server | its last message: what it has not answered goes to others |
| ping | proxy | nothing, to find out whether it can be sent: ignored by servers |
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple

from ding_like.comm.zmq.library import load_zmq
from ding_like.comm.zmq.proxy_routes import Client, Message, Routes, Server, Waiting
from ding_like.comm.zmq.sockets import Socket, open_socket
from ding_like.errors import CommError

if TYPE_CHECKING:
    from ding_like.comm.zmq.keys import SeedKeys

logger = logging.getLogger(__name__)

HELLO, BEAT, BYE, PING = b"hello", b"beat", b"bye", b"ping"
BEAT_S = 0.25  # between two beats of a server
MAX_FRAMES = 64  # of a request or a reply
MAX_FRAME_NBYTES = 2**28

_LOOK_S = 0.1  # between two looks at servers: a killed one is known after so long
_FORGET_S = 120.0  # after which a client that sends nothing is forgotten
_SWEEP_S = 10.0  # between two looks for those
_AT_ONCE = 256  # messages of one end that are passed on before the other end has its turn
_HWM = 1_000  # messages that wait for each client and server in its socket
_MAX_CLIENTS = 4_096


class ProxyCounts(NamedTuple):
    """Count what a proxy has done, and say what there is now."""

    clients: int  # now
    servers: int  # now
    waiting: int  # messages of clients, now, for there is no server
    requests: int  # that were passed on, those that went to another server included
    replies: int  # that were passed on
    moved: int  # clients that went on at another server
    lost: int  # servers that were killed, silent or gone without a word
    expired: int  # messages of clients that waited for too long, or were too many
    dropped: int  # messages for clients or servers that are gone, or that take nothing
    malformed: int  # messages that are none of the wire's
    cpu_us: float  # for a message, on average, of the thread that serves


class Proxy:
    """Route each client to a server of its own choice until that one is lost; use `serve` in one thread.

    A server that says nothing for `silent_s`, or to which nothing can be sent, loses its clients to the others, and
    they get the requests that it had not answered. While there is no server messages wait, at most `wait_s` and
    `max_waiting` of `max_waiting_nbytes` together; then the oldest are dropped, and their clients may ask again.

    A proxy that is started again on the same endpoints is found by clients and servers, and knows nothing of before.
    `clock` returns seconds.
    """

    def __init__(
        self,
        *,
        clients: str,
        servers: str,
        keys: SeedKeys | None = None,
        silent_s: float = 1.0,
        wait_s: float = 30.0,
        max_waiting: int = 4_096,
        max_waiting_nbytes: int = 2**28,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clients_at, self._servers_at = clients, servers
        self._keys = keys
        self._silent_s = silent_s
        self._wait_s = wait_s
        self._max_waiting, self._max_waiting_nbytes = max_waiting, max_waiting_nbytes
        self._clock = clock
        self._zmq = load_zmq()
        self._routes = Routes(max_clients=_MAX_CLIENTS)
        self._waiting: dict[Waiting, None] = {}  # in the order in which they came
        self._waiting_nbytes = 0
        self._now_s = clock()  # of this turn of the loop
        self._looked_s = self._swept_s = self._now_s
        self._cpu_s = 0.0
        self._num = dict.fromkeys(("requests", "replies", "lost", "expired", "dropped", "malformed"), 0)
        self._front: Socket | None = None  # the clients' end
        self._back: Socket | None = None  # the servers' end

    def bind(self) -> None:
        """Bind both endpoints, once; `serve` does where it was not done. Raises CommError where one cannot be."""
        if self._front is not None:
            return
        settings = dict(keys=self._keys, hwm=_HWM, max_frame_nbytes=MAX_FRAME_NBYTES)
        front = open_socket("router", bind=self._clients_at, **settings)  # type: ignore[arg-type]  # of three types
        try:
            self._back = open_socket("router", bind=self._servers_at, **settings)  # type: ignore[arg-type]
        except BaseException:
            front.close()
            raise
        self._front = front

    @property
    def client_endpoint(self) -> str:
        """Return where clients connect to; before `bind`, as it was given."""
        return self._clients_at if self._front is None else self._front.endpoint

    @property
    def server_endpoint(self) -> str:
        """Return where servers connect to; before `bind`, as it was given."""
        return self._servers_at if self._back is None else self._back.endpoint

    @property
    def counts(self) -> ProxyCounts:
        """Return counts as they are now; from any thread."""
        routes, num_messages = self._routes, self._num["requests"] + self._num["replies"]
        return ProxyCounts(
            clients=len(routes.clients),
            servers=len(routes.servers),
            waiting=len(self._waiting),
            moved=routes.num_moved,
            cpu_us=1e6 * self._cpu_s / max(num_messages, 1),
            **self._num,
        )

    def serve(self, stop: threading.Event) -> None:
        """Pass messages on until `stop` is set, which is seen within 0.1 s; then close.

        Raises CommError where an endpoint cannot be bound, or a socket is closed by somebody else.
        """
        self.bind()
        assert self._front is not None and self._back is not None
        zmq, front, back = self._zmq, self._front.raw, self._back.raw
        poller = zmq.Poller()
        poller.register(front, zmq.POLLIN)
        poller.register(back, zmq.POLLIN)
        look_ms = int(1000 * _LOOK_S)
        try:
            while not stop.is_set():
                ready = poller.poll(look_ms)
                began_s = time.thread_time()
                self._turn({socket for socket, _ in ready})
                self._cpu_s += time.thread_time() - began_s
        except zmq.ZMQError as error:
            raise CommError(f"the inference proxy cannot go on: {error}") from error
        finally:
            self.close()

    def close(self) -> None:
        """Close both sockets; may be called again."""
        for socket in (self._front, self._back):
            if socket is not None:
                socket.close()

    # --- turns of the loop

    def _turn(self, ready: set[Any]) -> None:  # Any: zmq.Socket
        assert self._front is not None and self._back is not None
        self._now_s = self._clock()
        # Servers first: what they have said while this process had no time counts before they are held to be silent.
        if self._back.raw in ready:
            self._drain(self._back.raw, self._from_server)
        if self._front.raw in ready:
            self._drain(self._front.raw, self._from_client)
        if self._now_s - self._looked_s >= _LOOK_S:
            self._look(self._now_s - self._looked_s)
            self._looked_s = self._now_s

    def _drain(self, socket: Any, handle: Callable[[list[Any]], None]) -> None:  # Any: zmq.Socket, zmq.Frame
        receive, now = socket.recv, self._zmq.NOBLOCK
        try:
            for _ in range(_AT_ONCE):
                frame = receive(now, copy=False)
                message = [frame]
                while frame.more:
                    frame = receive(now, copy=False)
                    if len(message) <= MAX_FRAMES + 2:  # more are malformed, however many
                        message.append(frame)
                handle(message)
        except self._zmq.Again:
            return

    def _look(self, passed_s: float) -> None:
        """Find servers that are gone, drop what has waited for too long, and forget clients that are silent."""
        # A process that was stopped, or had no time, has not heard what was said meanwhile: not yet.
        may_judge = passed_s < self._silent_s
        for server in list(self._routes.servers.values()):
            if may_judge and self._now_s - server.heard_s > self._silent_s:
                self._lose(server, f"has said nothing for {self._silent_s:g} s")
            elif self._send(self._back, server.identity, (b"", PING)) is _Sent.GONE:
                self._lose(server, "is gone")
        for each in [each for each in self._waiting if self._now_s - each.came_s > self._wait_s]:
            self._expire(each)
        if self._now_s - self._swept_s > _SWEEP_S:
            self._swept_s = self._now_s
            for client in list(self._routes.clients.values()):
                if self._now_s - client.heard_s > _FORGET_S:
                    self._routes.forget(client)

    # --- from clients to servers

    def _from_client(self, message: list[Any]) -> None:  # Any: zmq.Frame
        if not 2 <= len(message) <= MAX_FRAMES + 1:
            self._num["malformed"] += 1
            return
        client = self._routes.client(message[0].bytes)
        if client is None:
            self._num["dropped"] += 1
            return
        client.heard_s = self._now_s
        self._route(client, message)

    def _route(self, client: Client, message: Message) -> None:
        while (server := self._routes.server_of(client)) is not None:
            sent = self._send(self._back, server.identity, message)
            if sent is _Sent.YES:
                client.unanswered = message
                self._num["requests"] += 1
                return
            if sent is _Sent.FULL:
                self._num["dropped"] += 1
                return
            client.unanswered = None  # this message takes its place
            self._lose(server, "is gone")
        self._wait(client, message)

    def _wait(self, client: Client, message: Message) -> None:
        client.unanswered = None
        last = client.waiting
        if last is not None and [each.bytes for each in last.message] == [each.bytes for each in message]:
            last.came_s = self._now_s  # a request that is sent again takes its own place
            return
        client.waiting = Waiting(client, message, sum(map(len, message)), self._now_s)
        self._waiting[client.waiting] = None
        self._waiting_nbytes += client.waiting.nbytes
        while len(self._waiting) > self._max_waiting or self._waiting_nbytes > self._max_waiting_nbytes:
            self._expire(next(iter(self._waiting)))

    def _expire(self, waiting: Waiting) -> None:
        del self._waiting[waiting]
        self._waiting_nbytes -= waiting.nbytes
        self._num["expired"] += 1
        if waiting.client.waiting is waiting:
            waiting.client.waiting = None

    # --- servers

    def _from_server(self, message: list[Any]) -> None:  # Any: zmq.Frame
        identity = message[0].bytes
        if not 3 <= len(message) <= MAX_FRAMES + 2:
            self._num["malformed"] += 1
            return
        server, client_identity = self._routes.servers.get(identity), message[1].bytes
        if client_identity:
            self._reply(server, client_identity, message[1:])
            return
        word = message[2].bytes if len(message) == 3 else b""
        if word == BYE:
            if server is not None:
                self._lose(server, "")
        elif word in (HELLO, BEAT):
            # Nothing else makes a server of a peer: it would be sent requests.
            (server or self._join(identity)).heard_s = self._now_s
        else:
            self._num["malformed"] += 1

    def _reply(self, server: Server | None, client_identity: bytes, message: Message) -> None:
        """Pass a reply on, also one of a server that was given up meanwhile."""
        if server is not None:
            server.heard_s = self._now_s
        client = self._routes.clients.get(client_identity)
        if client is not None and client.server is server:
            client.unanswered = None
        sent = self._send(self._front, client_identity, message[1:])
        if sent is _Sent.YES:
            self._num["replies"] += 1
            return
        self._num["dropped"] += 1
        if sent is _Sent.GONE and client is not None:
            self._routes.forget(client)

    def _join(self, identity: bytes) -> Server:
        server = self._routes.join(identity)
        server.heard_s = self._now_s
        logger.info("inference server %r has joined; there are %d", identity, len(self._routes.servers))
        waiting, self._waiting, self._waiting_nbytes = self._waiting, {}, 0
        for each in waiting:
            each.client.waiting = None
            if self._routes.clients.get(each.client.identity) is each.client:
                self._route(each.client, each.message)
        return server

    def _lose(self, server: Server, why: str) -> None:
        """Give a server's clients, and what they wait for, to the others."""
        if self._routes.servers.get(server.identity) is not server:
            return  # found out while its own clients were given away
        if why:
            self._num["lost"] += 1
            logger.warning(
                "inference server %r %s: its %d clients go on at others", server.identity, why, len(server.clients)
            )
        for client in self._routes.lose(server):
            if client.unanswered is not None:
                message, client.unanswered = client.unanswered, None
                self._route(client, message)

    def _send(self, socket: Socket | None, identity: bytes, frames: Message) -> _Sent:
        """Send frames to a peer of a router, without copying them."""
        assert socket is not None
        zmq, send = self._zmq, socket.raw.send
        more = zmq.NOBLOCK | zmq.SNDMORE
        try:
            send(identity, more)
            for frame in frames[:-1]:
                send(frame, more, copy=False)
            send(frames[-1], zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return _Sent.FULL
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                return _Sent.GONE
            raise
        return _Sent.YES


class _Sent(Enum):
    """Say what has become of a message."""

    YES = auto()
    FULL = auto()  # the receiver takes nothing
    GONE = auto()
