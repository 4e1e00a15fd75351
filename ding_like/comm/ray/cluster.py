"""Connect to a Ray cluster: one of this process's own on this machine, or one that runs already, at an address."""

from __future__ import annotations

import logging
import socket
import threading
from pathlib import Path
from typing import Any

from ding_like.comm.ray.environment import RayEnvironment, end_connection, kept_signals
from ding_like.comm.ray.library import load_ray
from ding_like.comm.ray.own_cluster import Amounts, OwnCluster
from ding_like.comm.ray.token import MODE, check_token, describe_token
from ding_like.errors import CommError, ConfigError

logger = logging.getLogger(__name__)

_PROBE_S = 3.0
_ATTACH_TRIES = "3"  # of a second each; Ray's own are 20

_guard = threading.Lock()
_opened: list[RayCluster] = []  # at most one: Ray has one connection a process


class RayCluster:
    """Hold this process's connection to a Ray cluster until `close`.

    Without an address a cluster is started on this machine. Nobody without its token, in a file that only this user can
    read, may use it; its files are in a folder that only this user can enter; it ends with this process, in whatever
    way that ends, and with the thread that opened it. With an address this process attaches to a cluster that has a
    node on this machine, and `close` detaches. Where `ray.init` was called before, that connection is used and stays.
    """

    def __init__(self, address: str | None = None, amounts: Amounts | None = None, *, allow_open: bool = False) -> None:
        """Open it. `address` is "host:port" of its head; `allow_open` attaches to a cluster that asks for no token.

        Raises ConfigError for what cannot be had, and CommError where a cluster cannot be started or reached.
        """
        with _guard:
            if _opened:
                raise CommError("this process has a Ray cluster open, and Ray has one a process: close that first.")
            _opened.append(self)
        environment = RayEnvironment()
        try:
            self._held = _connect(address, amounts or Amounts(), environment, allow_open=allow_open)
        except BaseException:
            _opened.remove(self)
            environment.restore()
            raise

    @property
    def address(self) -> str:
        """Return "host:port" of the cluster's head."""
        return self._held.address

    @property
    def is_own(self) -> bool:
        """Tell whether this process started the cluster, so that `close` ends it."""
        return isinstance(self._held, OwnCluster)

    @property
    def folder(self) -> Path | None:
        """Return the folder with all files of an own cluster."""
        return self._held.folder if isinstance(self._held, OwnCluster) else None

    @property
    def processes(self) -> dict[str, int]:
        """Return the process ids of an own cluster's "gcs_server" and "raylet", without which it is lost."""
        return dict(self._held.processes) if isinstance(self._held, OwnCluster) else {}

    def close(self, *, timeout_s: float = 10.0) -> None:
        """End an own cluster and leave nothing of it, or detach; within `timeout_s`; may be called again."""
        if self in _opened:
            try:
                self._held.close(timeout_s=timeout_s)
            finally:
                _opened.remove(self)

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AttachedCluster:
    """Hold a connection to a cluster that others have started."""

    def __init__(self, ray: Any, address: str, environment: RayEnvironment, *, allow_open: bool) -> None:
        self.address = address
        self._environment = environment
        self._ray = ray
        mode = check_token(address, allow_open=allow_open)
        _probe(address)
        # Ray logs each of its attempts; what came of them is said below.
        quiet = {"RAY_gcs_server_port_wait_time_s": _ATTACH_TRIES}
        self._environment.set(self._ray, {MODE: mode, "RAY_ADDRESS": None, **quiet})
        try:
            with kept_signals():
                self._ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
        except BaseException as error:
            self.close(timeout_s=5.0)
            if isinstance(error, Exception):
                raise _refused(error, address, mode) from error
            raise
        logger.info("attached to Ray %s at %s, mode %s", self._ray.__version__, address, mode)

    def close(self, *, timeout_s: float) -> None:
        if end_connection(self._ray, timeout_s=timeout_s).is_alive():
            logger.warning("Ray did not detach from %s in %g s", self.address, timeout_s)
        self._environment.restore()


class BorrowedCluster:
    """Use the connection that the program has made itself; it is neither changed nor closed."""

    def __init__(self, ray: Any) -> None:  # Any: the module ray
        self.address = str(ray.get_runtime_context().gcs_address)

    def close(self, *, timeout_s: float) -> None:
        pass


def _connect(
    address: str | None, amounts: Amounts, environment: RayEnvironment, *, allow_open: bool
) -> OwnCluster | AttachedCluster | BorrowedCluster:
    ray = load_ray()
    if ray.is_initialized():
        held = BorrowedCluster(ray)
        if address not in (None, held.address):
            raise ConfigError(
                f"this process is connected to Ray at {held.address} already, not at {address}: call ray.shutdown() "
                "first, or leave the address out."
            )
        return held
    if address is None:
        return OwnCluster(ray, amounts, environment)
    if amounts != Amounts():
        raise ConfigError(f"amounts are for a cluster of its own: the one at {address} has what it was started with.")
    return AttachedCluster(ray, address, environment, allow_open=allow_open)


def _probe(address: str) -> None:
    """See whether anything listens there. Raises ConfigError for what is no address, CommError if nothing does."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise ConfigError(
            f"the address of a Ray cluster is host:port of its head, as `ray start --head` prints it, not {address!r}; "
            "ray:// (Ray Client) cannot be used: start this program on a node of the cluster."
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_S).close()
    except (OSError, OverflowError) as error:
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
