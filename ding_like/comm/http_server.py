"""HTTP server of a Flask application, and the checks of hosts and web pages that all servers make.

Floods, slow sockets and TLS are a reverse proxy's work: docs/parallel.md has the settings of one.
"""

from __future__ import annotations

import logging
import re
import resource
import socket
import threading
import time
from typing import Any

from flask import Flask, request
from waitress import wasyncore
from waitress.server import create_server

from ding_like.comm.rest.wire import RefusedError
from ding_like.errors import CommError, ConfigError
from ding_like.utils.machine import OWN_HOST, check_known, is_loopback

# Requests that wait for a thread are not worth a line each: where there are too many, answers take longer.
logging.getLogger("waitress.queue").setLevel(logging.ERROR)

MAX_BODY = 64 << 20  # bytes of any request; an application may set a lower limit
_MAX_HEAD = 16_384
_CONNECTIONS = 2000  # at most
_OTHER_FILES = 256  # descriptors that the process itself may need
_LOOK_S = 1.0
_GRACE_S = 10.0
_LOCAL_NAMES = ("127.0.0.1", "::1", "localhost")
_HOST = re.compile(r"(?:(?P<name>[A-Za-z0-9.-]+)|\[(?P<six>[0-9A-Fa-f:]+)\])(:[0-9]{1,5})?")


class HttpServer:
    """HTTP server of `app` at `url`, in a thread of its own between `start` and `close`.

    Raises CommError, which begins with `failing`, for a port that is in use and for a host that is not this machine's.
    """

    def __init__(self, app: Flask, *, host: str, port: int, threads: int, failing: str) -> None:
        listener = _listen(host, port, failing)
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
        self._sockets: dict[int, Any] = {}
        self._server = create_server(
            app,
            map=self._sockets,
            sockets=[listener],
            threads=threads,
            connection_limit=_connection_limit(),
            max_request_body_size=MAX_BODY + 1,
            max_request_header_size=_MAX_HEAD,
            asyncore_use_poll=True,  # select() cannot wait for descriptors above 1024
            log_socket_errors=False,
            ident=None,
        )
        self._close_by_s: float | None = None
        self._thread = threading.Thread(target=self._run, name="http-server", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """True while the thread that reads requests runs."""
        return self._thread.is_alive()

    def close(self, *, grace_s: float = _GRACE_S) -> None:
        """Answer the requests that were received, within `grace_s`, then free the port; may be called again."""
        if self._close_by_s is not None:
            return
        self._close_by_s = time.monotonic() + grace_s
        if self._thread.is_alive():
            self._server.pull_trigger()
            self._thread.join(grace_s + _GRACE_S)
        self._server.task_dispatcher.shutdown(timeout=grace_s)
        wasyncore.close_all(self._sockets, ignore_all=True)

    def _run(self) -> None:
        while self._close_by_s is None:
            wasyncore.poll2(_LOOK_S, self._sockets)
        self._server.handle_accept()  # a client that has connected has sent a request, or is about to
        wasyncore.dispatcher.close(self._server)  # the port
        wasyncore.poll2(0.0, self._sockets)  # read what has arrived
        while self._close_idle() and (left_s := self._close_by_s - time.monotonic()) > 0:
            wasyncore.poll2(min(left_s, _LOOK_S), self._sockets)

    def _close_idle(self) -> int:
        """Close idle connections; return how many are left."""
        channels = self._server.active_channels
        for channel in list(channels.values()):
            # In this order: a response is in the buffer before its request is removed.
            if not channel.requests and not channel.total_outbufs_len and channel.request is None:
                channel.handle_close()
        return len(channels)


def check_host(host: str, *, has_secret: bool, remedy: str) -> None:
    """Raise ConfigError for a host that is empty or not known, and for one that other machines reach without a secret.

    `remedy` is the option that gives a secret, and the command that makes one.
    """
    if not host.strip():
        raise ConfigError(
            "the host is empty, which would be every interface of this machine: give --host 127.0.0.1 for this machine "
            f"alone, or --host 0.0.0.0 and {remedy}."
        )
    check_known(host, "--host", OWN_HOST)
    if not has_secret and not is_loopback(host):
        raise ConfigError(f"the host {host} can be reached from other machines: give {remedy}.")


def local_names(host: str) -> tuple[str, ...] | None:
    """Return the names by which clients may call a server on `host`; None for any, where other machines reach it."""
    return _LOCAL_NAMES if is_loopback(host) else None


def check_envelope(names: tuple[str, ...] | None) -> None:
    """Raise RefusedError for the present request if a web page sent it, or if its body is encoded.

    A web page whose name was made to resolve to this machine (DNS rebinding) sends that name as Host.
    """
    host = request.headers.get("Host", "")
    found = _HOST.fullmatch(host)
    if names is not None and (found is None or (found["name"] or found["six"]).lower() not in names):
        raise RefusedError("malformed", f"the Host of the request is {host[:80]!r}, expected one of {', '.join(names)}")
    if "Origin" in request.headers:
        raise RefusedError("wrong_role", "the request has an Origin: requests of web pages are not answered")
    if "Content-Encoding" in request.headers:
        raise RefusedError(
            "wrong_content_type", "the request has a Content-Encoding, expected a plain body: leave the header out"
        )


def _listen(host: str, port: int, failing: str) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while")[0]
        raise CommError(
            f"{failing} {host}:{port}: {reason}. Give another --port (0 takes any that is free), or a --host of this "
            "machine."
        ) from error


def _connection_limit() -> int:
    """Return how many connections leave this process descriptors for its own files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = _CONNECTIONS if soft == resource.RLIM_INFINITY else max(soft - _OTHER_FILES, soft // 2)
    return max(min(_CONNECTIONS, free), 8)
