"""Run the inference proxy in a process of its own, which can be killed and started again on the same endpoints."""

from __future__ import annotations

import json
import os
import select
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ding_like.comm.zmq.proxy import ProxyCounts
from ding_like.comm.zmq.proxy_main import COUNTS, start_proxy
from ding_like.comm.zmq.sockets import tcp_endpoint
from ding_like.errors import CommError
from ding_like.utils.parent import forget_child
from ding_like.utils.processes import describe_status, end_processes

if TYPE_CHECKING:
    from ding_like.comm.zmq.keys import SeedKeys

_END_S = 2.0  # for the process to end by itself, and then when it is asked to


class ProxyPorts(NamedTuple):
    """Hold the ports of the clients' and the servers' end, 0 for ipc."""

    router_port: int
    dealer_port: int


class InferenceProxy:
    """Start, watch and end the process of a `Proxy`, whose settings the others are; threads may share it.

    Endpoints are free ports of the loopback address unless they are given. The process ends with this one, in whatever
    way. Warnings of it go to the end of the file `log`, by default where this process's do. Use it with `with`.
    """

    def __init__(
        self,
        clients: str | None = None,
        servers: str | None = None,
        *,
        keys: SeedKeys | None = None,
        log: str | os.PathLike[str] | None = None,
        start_timeout_s: float = 30.0,
        **settings: float,
    ) -> None:
        self._clients_at = clients or tcp_endpoint("127.0.0.1")
        self._servers_at = servers or tcp_endpoint("127.0.0.1")
        self._keys = keys
        self._log = None if log is None else Path(log)
        self._start_timeout_s = start_timeout_s
        self._settings = settings
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._alive: int | None = None  # a pipe's end that can be read once the process has ended
        self._heard = b""  # of its output, what is no whole line yet

    def start(self) -> ProxyPorts:
        """Start the process, or another one where it has ended, and return the ports once both are bound.

        Another one is bound to the endpoints of the first. Raises CommError where one cannot be bound or the process
        does not say so in time.
        """
        with self._lock:
            if self.is_alive():
                raise CommError("the inference proxy is running; stop it before it is started again.")
            self.stop()
            self._alive, theirs = os.pipe()
            settings = {**self._settings, "clients": self._clients_at, "servers": self._servers_at}
            try:
                if self._log is None:
                    self._process = start_proxy(settings, keys=self._keys, alive=theirs, log=None)
                else:
                    with open(self._log, "ab") as log:
                        self._process = start_proxy(settings, keys=self._keys, alive=theirs, log=log)
            finally:
                os.close(theirs)
            try:
                bound = self._hear(self._start_timeout_s)
                if bound is None or "error" in bound:
                    self.stop()
                    why = f"it {self.how_it_ended()}" if bound is None else bound["error"]
                    raise CommError(f"the inference proxy has not started: {why}")
            except BaseException:
                self.stop()
                raise
            self._clients_at, self._servers_at = bound["clients"], bound["servers"]
            return ProxyPorts(_port(self._clients_at), _port(self._servers_at))

    @property
    def client_endpoint(self) -> str:
        """Return where clients connect to; before `start`, as it was given."""
        return self._clients_at

    @property
    def server_endpoint(self) -> str:
        """Return where servers connect to; before `start`, as it was given."""
        return self._servers_at

    @property
    def pid(self) -> int | None:
        """Return the id of the process, None before the first `start`."""
        return None if self._process is None else self._process.pid

    @property
    def exitcode(self) -> int | None:
        """Return how the process ended, None while it runs."""
        return None if self._process is None else self._process.poll()

    @property
    def sentinel(self) -> int:
        """Return a descriptor that can be read once the process has ended, for `multiprocessing.connection.wait`."""
        if self._alive is None:
            raise CommError("the inference proxy was not started.")
        return self._alive

    def is_alive(self) -> bool:
        """Tell whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def how_it_ended(self) -> str:
        """Say how the process ended: "was killed by SIGKILL", say."""
        return "has not ended" if self.exitcode is None else describe_status(self.exitcode)

    def counts(self, *, timeout_s: float = 1.0) -> ProxyCounts | None:
        """Return what the proxy has done, None where it has ended or does not answer in time."""
        with self._lock:
            if self._process is None or self._process.stdin is None or self._process.stdin.closed:
                return None
            with suppress(OSError):  # it has ended
                self._process.stdin.write(COUNTS)
                self._process.stdin.flush()
                answer = self._hear(timeout_s)
                return None if answer is None else ProxyCounts(**answer)
            return None

    def kill(self) -> None:
        """End the process at once, as the system might, and wait for its end."""
        with self._lock:
            if self._process is not None:
                self._process.kill()
                self._process.wait(_END_S)

    def stop(self) -> None:
        """End the process and release what it takes; may be called again, also where it was killed."""
        with self._lock:
            if self._process is not None:
                with suppress(OSError):  # what was not read is not written
                    forget_child(self._process)
                end_processes([self._process], own_s=_END_S, asked_s=_END_S)
                if self._process.stdout is not None:
                    self._process.stdout.close()
            if self._alive is not None:
                os.close(self._alive)
            self._alive, self._heard = None, b""

    def __enter__(self) -> InferenceProxy:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _hear(self, timeout_s: float) -> dict[str, Any] | None:  # Any: of JSON
        """Return the next line of the process, None where none comes in time or it has ended."""
        assert self._process is not None and self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        deadline_s = time.monotonic() + timeout_s
        while b"\n" not in self._heard:
            if not poll.poll(1000 * max(deadline_s - time.monotonic(), 0.0)):
                return None
            received = os.read(descriptor, 4096)
            if not received:
                return None
            self._heard += received
        line, _, self._heard = self._heard.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found


def _port(endpoint: str) -> int:
    return int(endpoint.rpartition(":")[2]) if endpoint.startswith("tcp://") else 0
