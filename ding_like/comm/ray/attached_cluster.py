"""Attach to a Ray cluster that others have started, and say in one line why it does not let this process in."""

from __future__ import annotations

import logging
import socket
from typing import Any

from ding_like.comm.ray.environment import RayEnvironment, end_connection, kept_signals, without_attempts
from ding_like.comm.ray.token import MODE, check_token, describe_token
from ding_like.errors import CommError, ConfigError
from ding_like.utils.addresses import check_known

logger = logging.getLogger(__name__)

PROBE_S = 3.0
_ATTEMPTS = "3"  # of a second each; Ray's own are 20


class AttachedCluster:
    """Hold a connection to a cluster that others have started."""

    # Any: the module ray
    def __init__(self, ray: Any, address: str, environment: RayEnvironment, *, allow_open: bool) -> None:
        """Attach; within seconds. Raises ConfigError and CommError as RayCluster does."""
        self.address = address
        self._environment = environment
        self._ray = ray
        check_address(address)
        mode = check_token(address, allow_open=allow_open)
        probe(address)
        attempts = {"RAY_gcs_server_port_wait_time_s": _ATTEMPTS}
        self._environment.set(self._ray, {MODE: mode, "RAY_ADDRESS": None, **attempts})
        try:
            with kept_signals(), without_attempts():
                self._ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
        except BaseException as error:  # closed after any error; Ray's own are translated by `_refused`
            self.close(timeout_s=5.0)
            if isinstance(error, Exception):
                raise _refused(error, address, mode) from error
            raise
        logger.info("attached to Ray %s at %s, mode %s", self._ray.__version__, address, mode)

    def close(self, *, timeout_s: float) -> None:
        """Detach."""
        if not end_connection(self._ray, timeout_s=timeout_s):
            logger.warning("Ray did not detach from %s in %g s", self.address, timeout_s)
        self._environment.restore()


def check_address(address: str) -> None:
    """Raise ConfigError for what is not the address of a head, or names a host that cannot be resolved."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16 or "/" in host:
        raise ConfigError(
            f"--address (system.ray.address) is {address!r}; give host:port of the Ray cluster's head, as `ray start "
            "--head` prints it (192.168.1.5:6379), or leave it out to start a cluster on this machine. ray:// (Ray "
            "Client) cannot be used: start this program on a node of the cluster."
        )
    check_known(host.strip("[]"), "--address (system.ray.address)", "give host:port as `ray start --head` prints it")


def probe(address: str) -> None:
    """See whether anything listens there. Raises CommError if nothing does."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PROBE_S).close()
    except OSError as error:
        raise CommError(
            f"nothing answers at {address} ({error}). Is Ray's head running there (ray start --head --port={port}), "
            f"and is the port open from here? It would be attached to with {describe_token()}."
        ) from error


def _refused(error: Exception, address: str, mode: str) -> Exception:
    """Return in one line why Ray did not let this process in."""
    if isinstance(error, CommError | ConfigError):
        return error
    said = _chain(error)
    with_what = f"{MODE}={mode}, {describe_token()}" if mode == "token" else f"{MODE}=disabled"
    if "InvalidAuthToken" in said or "AuthenticationError" in said:
        return CommError(f"Ray at {address} refuses this token: {with_what}. Use the token that it was started with.")
    if "Version mismatch" in said:
        return CommError(f"Ray at {address} runs other versions than this process. {' '.join(said.split())}")
    if "node info" in said or "node to connect" in said:
        return CommError(
            f"Ray at {address} has no node on this machine: join it first (ray start --address={address}); {with_what}."
        )
    return CommError(f"Ray at {address} cannot be attached to ({with_what}): {said.splitlines()[-1]}")


def _chain(error: BaseException | None) -> str:
    lines = []
    while error is not None:
        lines.append(f"{type(error).__name__}: {error}")
        error = error.__cause__ or error.__context__
    return "\n".join(lines)
