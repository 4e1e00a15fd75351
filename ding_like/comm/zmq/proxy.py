"""Pass requests of inference clients to inference servers, and the replies back."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from ding_like.comm.zmq.inference_messages import MAX_NBYTES
from ding_like.comm.zmq.library import load_zmq, receive_event
from ding_like.comm.zmq.sockets import open_socket, own_context, port_of, tcp_endpoint
from ding_like.errors import CommError

if TYPE_CHECKING:
    from ding_like.comm.zmq.keys import SeedKeys

logger = logging.getLogger(__name__)

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
        self._is_stopped = threading.Event()
        self._lock = threading.Lock()  # guards the socket that commands go out by, and whether the proxy listens
        self._is_running = False
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
        context = own_context()
        commands, self._commands = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
        commands.bind(f"inproc://proxy-{id(self)}")
        self._commands.connect(f"inproc://proxy-{id(self)}")
        events = back.raw.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_MONITOR_STOPPED)
        self._threads = [
            threading.Thread(target=self._pass_on, args=(front, back, commands), name="inference-proxy", daemon=True),
            threading.Thread(target=self._watch, args=(events,), name="inference-proxy-servers", daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        return ProxyPorts(port_of(self.client_endpoint), port_of(self.server_endpoint))

    def stop(self) -> None:
        """End the threads and close the sockets; may be called again."""
        if not self._threads or self._is_stopped.is_set():
            return
        self._is_stopped.set()
        self._pause()
        self._has_servers.set()
        for thread in self._threads:
            thread.join(_END_S)
            if thread.is_alive():
                logger.warning("thread %s has not ended within %g s", thread.name, _END_S)
        self._commands.close(0)

    def __enter__(self) -> InferenceProxy:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _pass_on(self, front: Any, back: Any, commands: Any) -> None:  # Any: Sockets, and a zmq.Socket
        """Run ZeroMQ's proxy while there are servers."""
        zmq = load_zmq()
        try:
            while True:
                self._has_servers.wait()  # until there is one, or `stop`
                with self._lock:
                    if self._is_stopped.is_set():
                        break
                    if not self._has_servers.is_set():
                        continue
                    self._is_running = True
                zmq.proxy_steerable(front.raw, back.raw, None, commands)
        except zmq.ZMQError:
            logger.exception("the inference proxy has failed: actors will time out")
        finally:
            back.raw.disable_monitor()
            for socket in (front, back):
                socket.close()
            commands.close(0)

    def _watch(self, events: Any) -> None:  # Any: a zmq.Socket
        """Follow which servers are connected, by the descriptors of their connections."""
        zmq = load_zmq()
        servers: set[int] = set()
        while True:
            event, connection = receive_event(events)  # without a deadline: the last one reports that the socket closes
            if event == zmq.EVENT_MONITOR_STOPPED:
                break
            (servers.add if event == zmq.EVENT_ACCEPTED else servers.discard)(connection)
            if servers:
                self._has_servers.set()
            elif not self._is_stopped.is_set():
                self._has_servers.clear()
                self._pause()
        events.close(0)

    def _pause(self) -> None:
        """End ZeroMQ's proxy, if it runs."""
        with self._lock:
            if self._is_running:
                self._is_running = False
                self._commands.send(b"TERMINATE")
