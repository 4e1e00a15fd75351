"""Sockets of ZeroMQ: rows, inference and weights of a run with central inference. pyzmq is loaded here, when needed."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from ding_like.errors import ConfigError
from ding_like.utils.registries import pip_line


def load_zmq() -> ModuleType:
    """Return the module zmq. Raises ConfigError with the command that installs it where it is missing."""
    try:
        import zmq
    except ImportError as error:
        raise ConfigError(
            f"pyzmq cannot be loaded ({error}): install it with {pip_line('seed')}, or train with -m serial."
        ) from error
    return zmq


def load_curve() -> ModuleType:
    """Return the module zmq, built with CURVE. Raises ConfigError where it is missing or has none."""
    zmq = load_zmq()
    if not zmq.has("curve"):
        raise ConfigError(
            f"this pyzmq {zmq.__version__} was built without CURVE, by which strangers are kept out: install the "
            f"wheel, {pip_line('seed', options='--force-reinstall')}."
        )
    return zmq


def own_context() -> Any:  # Any: zmq.Context
    """Return this process's context; a child after a fork has one of its own, and none is ended before its process."""
    return load_zmq().Context.instance(io_threads=2)  # one for the proxy's messages beside one for rows


def own_authenticator() -> Any:  # Any: pyzmq's `ThreadAuthenticator`
    """Return a new authenticator of all sockets of this process."""
    from zmq.auth.thread import ThreadAuthenticator

    return ThreadAuthenticator(own_context())
