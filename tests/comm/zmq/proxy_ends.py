"""Be clients and servers of an inference proxy in a test's own thread, and run the proxy in another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ding_like.comm.zmq.proxy import HELLO, Proxy, ProxyCounts
from ding_like.comm.zmq.sockets import Poller, Socket, open_socket
from tests.support import wait_until

SOON_S = 60.0
MOMENT_S = 0.05


@contextmanager
def serving(proxy: Proxy) -> Iterator[Proxy]:
    """Run a proxy in a thread, and raise here what it raises."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def serve() -> None:
        try:
            proxy.serve(stop)
        except BaseException as error:
            failures.append(error)

    proxy.bind()
    thread = threading.Thread(target=serve, name="proxy")
    thread.start()
    try:
        yield proxy
    finally:
        stop.set()
        thread.join(SOON_S)
        assert not thread.is_alive()
    if failures:
        raise failures[0]


class End:
    """Be one socket, of a client or a server."""

    def __init__(self, endpoint: str, identity: bytes, **settings: object) -> None:
        self.socket: Socket = open_socket("dealer", connect=endpoint, identity=identity, **settings)  # type: ignore[arg-type]
        self._poller = Poller(self.socket)

    def send(self, *frames: bytes) -> None:
        assert self.socket.send(frames, wait_s=SOON_S)

    def receive(self, timeout_s: float = SOON_S) -> list[bytes] | None:
        """Return the next message but pings, None if none comes in time."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            frames = self.socket.receive()
            if frames is None:
                if not self._poller.wait(max(deadline_s - time.monotonic(), 0.0)):
                    return None
            elif len(frames[0]) or len(frames) != 2 or bytes(frames[1]) != b"ping":
                return [bytes(frame) for frame in frames]

    def hello(self) -> None:
        self.send(b"", HELLO)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> End:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def await_counts(proxy: Proxy, holds: Callable[[ProxyCounts], bool]) -> ProxyCounts:
    """Return the proxy's counts once they are as expected."""
    wait_until(lambda: holds(proxy.counts), "what the proxy is to count")
    return proxy.counts
