"""Connect to a Ray cluster: one of this process's own on this machine, or one that runs already, at an address."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ding_like.comm.ray.actors import ClusterLoss
from ding_like.comm.ray.attached_cluster import AttachedCluster
from ding_like.comm.ray.environment import RayEnvironment
from ding_like.comm.ray.library import load_ray
from ding_like.comm.ray.needs import Need, plan_here, plan_on_cluster
from ding_like.comm.ray.own_cluster import Amounts, OwnCluster
from ding_like.errors import CommError, ConfigError

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
        ClusterLoss.why = None
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
        """Return the process ids of an own cluster's daemons by name ("raylet"), without any of which it is lost."""
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


class BorrowedCluster:
    """Use the connection that the program has made itself; it is neither changed nor closed."""

    def __init__(self, ray: Any) -> None:  # Any: the module ray
        self.address = str(ray.get_runtime_context().gcs_address)

    def close(self, *, timeout_s: float) -> None:
        pass


def open_cluster(needs: Sequence[Need]) -> RayCluster | None:
    """Start a cluster for workers where this process has none; None where it is connected to one.

    Raises ConfigError, having started nothing, for workers that no node has room for.
    """
    ray = load_ray()
    if ray.is_initialized():
        plan = plan_on_cluster(needs)
        if plan.unplaced:  # others' workers may end: what they use is no reason
            plan.check()
        return None
    plan, amounts = plan_here(needs)
    plan.check()
    return RayCluster(amounts=amounts)


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
