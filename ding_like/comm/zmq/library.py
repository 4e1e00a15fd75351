"""Load pyzmq, the one place that does."""

from __future__ import annotations

from typing import Any

from ding_like.errors import ConfigError
from ding_like.utils.extras import pip_line


def load_zmq() -> Any:  # Any: a package that need not be installed
    """Return the module zmq. Raises ConfigError that says how to install it where it is missing or too plain."""
    try:
        import zmq
    except ImportError as error:
        raise ConfigError(
            f"pyzmq cannot be loaded ({error}): install it with {pip_line('seed')}, or train with -m serial."
        ) from error
    return zmq


def load_authenticator() -> Any:  # Any: a class of a package that need not be installed
    """Return pyzmq's `ThreadAuthenticator`. Raises ConfigError as `load_curve` does."""
    load_curve()
    from zmq.auth.thread import ThreadAuthenticator

    return ThreadAuthenticator


def receive_event(monitor: Any) -> tuple[int, int]:  # Any: a zmq.Socket
    """Return (event, value) of the next event of a socket's monitor; wait for it."""
    load_zmq()
    from zmq.utils.monitor import recv_monitor_message

    found = recv_monitor_message(monitor)
    return int(found["event"]), int(found["value"])


def load_curve() -> Any:  # Any: as above
    """Return the module zmq, built with CURVE. Raises ConfigError where it is missing or has none."""
    zmq = load_zmq()
    if not zmq.has("curve"):
        raise ConfigError(
            f"this pyzmq {zmq.__version__} was built without CURVE, by which strangers are kept out: install the "
            f"wheel, {pip_line('seed', options='--force-reinstall')}."
        )
    return zmq
