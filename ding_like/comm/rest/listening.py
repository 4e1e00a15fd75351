"""Listen for HTTP on a host and port."""

from __future__ import annotations

import socket

from ding_like.errors import CommError


def listen(host: str, port: int, *, failing: str) -> socket.socket:
    """Return a socket that listens. `failing` begins the message where it cannot: "the policy cannot be served on".

    Raises CommError for a port that is in use, and for a host that is not this machine's.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while")[0]
        raise CommError(
            f"{failing} {host}:{port}: {reason}. Give another --port (0 takes any that is free), or a --host of this "
            "machine."
        ) from error


def url_of(host: str, listener: socket.socket) -> str:
    """Return the URL of a socket that `listen` made for a host."""
    return f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
