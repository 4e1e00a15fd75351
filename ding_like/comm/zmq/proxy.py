"""Proxy that passes requests of inference clients to inference servers, and the replies back."""

from __future__ import annotations

import struct
import threading
from contextlib import suppress
from typing import Any, NamedTuple

from ding_like.comm.zmq import load_zmq, own_context
from ding_like.comm.zmq.inference import MAX_NBYTES
from ding_like.comm.zmq.keys import SeedKeys
from ding_like.comm.zmq.sockets import open_socket, port_of, tcp_endpoint
from ding_like.errors import CommError

_END_S = 5.0


class ProxyPorts(NamedTuple):
    """Ports of the clients' and the servers' end, 0 for ipc."""

    router_port: int
    dealer_port: int


class InferenceProxy:
    """Proxy between many clients (ROUTER) and many inference servers (DEALER), which get the requests in turn.

    ZeroMQ's own proxy does the work, in a thread without Python. It runs while there are servers: without one it would
    spin on the requests that wait. A request whose server is lost is sent again by its client, to the next server.
    Endpoints are free ports of the loopback address unless they are given. Use it with `with`. Source: the SEED
    trainer's document.
    """

    def __init__(self, clients: str | None = None, servers: str | None = None, *, keys: SeedKeys | None = None) -> None:
        self.client_endpoint = clients or tcp_endpoint("127.0.0.1")
        self.server_endpoint = servers or tcp_endpoint("127.0.0.1")
        self._keys = keys
        self._has_servers = threading.Event()
        self._is_stopped = False
        self._lock = threading.Lock()  # guards the socket that ends ZeroMQ's proxy
        self._commands: Any = None  # Any: a zmq.Socket
        self._threads: list[threading.Thread] = []

    def start(self) -> ProxyPorts:
        """Bind both ends, begin to pass messages on, and return the ports. Raises CommError where one is taken."""
        if self._threads:
            raise CommError("an inference proxy is started once; make another one.")
        zmq = load_zmq()
        # A client that is gone must not end the proxy: what is for it is dropped.
        front = open_socket(
            "router", bind=self.client_endpoint, keys=self._keys, max_frame_nbytes=MAX_NBYTES, is_mandatory=False
        )
        try:
            back = open_socket("dealer", bind=self.server_endpoint, keys=self._keys, max_frame_nbytes=MAX_NBYTES)
        except BaseException:
            front.close()
            raise
        self.client_endpoint, self.server_endpoint = front.endpoint, back.endpoint
        commands, self._commands = (own_context().socket(zmq.PAIR) for _ in range(2))
        commands.bind(f"inproc://proxy-{id(self)}")
        self._commands.connect(f"inproc://proxy-{id(self)}")
        events = back.raw.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_MONITOR_STOPPED)
        for run, used in ((self._pass_on, (front, back, commands)), (self._follow_servers, (events,))):
            self._threads.append(threading.Thread(target=run, args=used, name="inference-proxy", daemon=True))
            self._threads[-1].start()
        return ProxyPorts(port_of(self.client_endpoint), port_of(self.server_endpoint))

    def stop(self) -> None:
        """End the threads and close the sockets; may be called again."""
        if self._threads and not self._is_stopped:
            self._is_stopped = True
            self._has_servers.set()
            self._pause()
            for thread in self._threads:
                thread.join(_END_S)
            self._commands.close(0)

    def __enter__(self) -> InferenceProxy:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _pass_on(self, front: Any, back: Any, commands: Any) -> None:  # Any: Sockets, and a zmq.Socket
        """Run ZeroMQ's proxy while there are servers."""
        while self._has_servers.wait() and not self._is_stopped:
            load_zmq().proxy_steerable(front.raw, back.raw, None, commands)  # until `_pause`
        back.raw.disable_monitor()
        front.close()
        back.close()
        commands.close(0)

    def _follow_servers(self, events: Any) -> None:  # Any: a zmq.Socket
        """Follow which servers are connected, by the descriptors of their connections."""
        zmq = load_zmq()
        servers: set[int] = set()
        while True:
            event, connection = struct.unpack("=hi", events.recv_multipart()[0])
            if event == zmq.EVENT_MONITOR_STOPPED:
                break
            (servers.add if event == zmq.EVENT_ACCEPTED else servers.discard)(connection)
            if servers:
                self._has_servers.set()
            elif not self._is_stopped:
                self._has_servers.clear()
                self._pause()
        events.close(0)

    def _pause(self) -> None:
        """End ZeroMQ's proxy, or its next run where it does not run at the moment."""
        zmq = load_zmq()
        with self._lock, suppress(zmq.Again):  # its thread has ended
            self._commands.send(b"TERMINATE", zmq.NOBLOCK)
