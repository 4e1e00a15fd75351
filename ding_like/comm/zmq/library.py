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


def load_curve() -> Any:  # Any: as above
    """Return the module zmq, built with CURVE. Raises ConfigError where it is missing or has none."""
    zmq = load_zmq()
    if not zmq.has("curve"):
        raise ConfigError(
            f"this pyzmq {zmq.__version__} was built without CURVE, by which strangers are kept out: install the "
            f"wheel, {pip_line('seed', options='--force-reinstall')}."
        )
    return zmq


def z85_of(key: bytes) -> str:
    """Return 32 bytes as text of 40 characters."""
    load_zmq()
    from zmq.utils import z85

    text: bytes = z85.encode(key)
    return text.decode()
