"""Notice that a Ray cluster is lost, while there is time to save: Ray ends this process 60 s later, without a word."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ding_like.comm.ray.cluster import RayCluster, knock
from ding_like.comm.ray.library import load_ray

logger = logging.getLogger(__name__)

_NEAR = 0.8  # of the object store: beyond it Ray begins to write to disk


class StoreUse(NamedTuple):
    """Bytes in use of a cluster's object stores; `spilled` is on disk, None where it is not known."""

    used: int
    total: int
    spilled: int | None

    def numbers(self) -> dict[str, float]:
        """Return them by their names in a run's metrics."""
        found = {f"store_{name}_bytes": value for name, value in self._asdict().items()}
        return {name: float(value) for name, value in found.items() if value is not None}

    def __str__(self) -> str:
        on_disk = f", {self.spilled / 2**20:.0f} MiB on disk" if self.spilled else ""
        return f"{self.used / 2**20:.0f} of {self.total / 2**20:.0f} MiB{on_disk}"


class ClusterWatch:
    """Watch of the cluster that this process is connected to, in a thread, until `close`.

    The head is asked for the nodes every `interval_s`. The cluster is lost if there is no answer within `answer_s` or a
    node is gone. Close the watch before the cluster.
    """

    def __init__(self, cluster: RayCluster, *, interval_s: float = 2.0, answer_s: float = 8.0) -> None:
        """Begin to watch."""
        self._cluster, self._interval_s, self._answer_s = cluster, interval_s, answer_s
        self._lost: str | None = None
        self._store = StoreUse(0, 0, None)
        self._asked_s: float | None = None  # while a question is under way
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="ray-watch", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> str | None:
        """Reason for which the cluster is lost, None while it is not."""
        asked_s = self._asked_s
        if self._lost is None and asked_s is not None and time.monotonic() - asked_s > self._answer_s:
            self._lost = f"its head (GCS) has not answered for {self._answer_s:g} s"
        return self._lost

    def describe_loss(self) -> str:
        """Return in words that the cluster is lost, and why."""
        return f"the Ray cluster at {self._cluster.address} is lost: {self.lost}"

    def store(self) -> StoreUse:
        """Return what the object stores held when last asked."""
        return self._store

    def close(self, *, timeout_s: float = 5.0) -> None:
        """Stop watching; may be called again.

        A question that a lost cluster does not answer stays in its thread until Ray gives up, for up to a minute.
        """
        self._is_closed.set()
        if self.lost is None:
            self._thread.join(timeout_s)

    def __enter__(self) -> ClusterWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _watch(self) -> None:
        ray, before, is_warned = load_ray(), dict[str, str](), False
        while not self._is_closed.is_set() and self._lost is None:
            self._asked_s = time.monotonic()
            try:
                knock(self._cluster.address, timeout_s=self._answer_s)  # Ray waits a minute for a head that has ended
                nodes = {node["NodeID"]: str(node["NodeManagerAddress"]) for node in ray.nodes() if node["Alive"]}
                total, free = (
                    int(resources.get("object_store_memory", 0))
                    for resources in (ray.cluster_resources(), ray.available_resources())
                )
            except Exception as error:  # Ray raises several classes where the head does not answer; the run ends
                self._lost = self._lost or f"its head (GCS) does not answer ({type(error).__name__}: {error})"
                return
            self._asked_s = None
            gone = [address for key, address in before.items() if key not in nodes]
            if gone:
                self._lost = f"its node {', '.join(gone)} has ended"
            before = nodes
            self._store = StoreUse(max(total - free, 0), total, _bytes_spilled(self._cluster.folder))
            if not is_warned and (self._store.spilled or self._store.used > _NEAR * total):
                is_warned = True
                logger.warning(
                    "Ray's object store is full or nearly so (%s), and what does not fit is written to disk: that is "
                    "slow. Let collectors send less at once (segment_rows), or give the store more memory.",
                    self._store,
                )
            self._is_closed.wait(self._interval_s)


def _bytes_spilled(folder: Path | None) -> int | None:
    """Return the size of the objects on disk of an own cluster, None for another's."""
    if folder is None:
        return None
    sizes = []
    for path in folder.glob("r/session_2*/ray_spilled_objects_*/*"):
        with suppress(OSError):  # deleted meanwhile
            sizes.append(path.stat().st_size)
    return sum(sizes)
