"""Notice that a Ray cluster is lost, while there is time to save: Ray ends this process 60 s later, without a word."""

from __future__ import annotations

import logging
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ding_like.comm.ray.cluster import RayCluster
from ding_like.comm.ray.library import load_ray
from ding_like.errors import CommError

logger = logging.getLogger(__name__)

_HEAD = "gcs_server"  # without which the workers still answer
_NEAR = 0.8  # of the object store: beyond it Ray begins to write to disk


class StoreUse(NamedTuple):
    """Hold how much of a cluster's object stores is in use, in bytes; `spilled` is on disk, None where not seen."""

    used: int
    total: int
    spilled: int | None

    def numbers(self) -> dict[str, float]:
        """Return them by the names that they have among a run's metrics."""
        on_disk = {} if self.spilled is None else {"store_spilled_bytes": float(self.spilled)}
        return {"store_used_bytes": float(self.used), "store_total_bytes": float(self.total), **on_disk}

    def __str__(self) -> str:
        on_disk = f", {self.spilled / 2**20:.0f} MiB on disk" if self.spilled else ""
        return f"{self.used / 2**20:.0f} of {self.total / 2**20:.0f} MiB{on_disk}"


class ClusterWatch:
    """Watch the cluster that this process is connected to, in a thread, until `close`.

    An own cluster's daemons are children of this process, whose end is known at once. Any cluster is asked for its
    nodes every `interval_s`, and is lost if that is not answered in `answer_s` or a node is gone. To be closed before
    the cluster.
    """

    def __init__(
        self,
        cluster: RayCluster,
        *,
        interval_s: float = 3.0,
        answer_s: float = 8.0,
        on_lost: Callable[[], None] | None = None,
        on_node_lost: Callable[[str], None] | None = None,
    ) -> None:
        """Begin to watch; `on_lost` is called once, in the thread that watches.

        `on_node_lost` is called with the reason where an own cluster's raylet or one of its agents ends: from then on
        a call of Ray would end this process without a word.
        """
        self._cluster = cluster
        self._interval_s, self._answer_s = interval_s, answer_s
        self._on_lost, self._on_node_lost = on_lost, on_node_lost
        self._ray = load_ray()
        self._lost: str | None = None
        self._store = StoreUse(0, 0, None)
        self._is_warned = False
        self._nodes: dict[str, str] = {}  # id -> address, of those that lived when last asked
        self._guard = threading.Lock()
        self._asker: threading.Thread | None = None  # while a question is under way
        self._daemons = _open_daemons(cluster)
        self._woken, self._wake = os.pipe()
        self._is_closed = False
        self._ask()
        self._thread = threading.Thread(target=self._watch, name="ray-watch", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> str | None:
        """Return why the cluster is lost, None while it is not."""
        return self._lost

    def check(self) -> None:
        """Raise CommError if the cluster is lost."""
        if self._lost is not None:
            raise CommError(f"the Ray cluster at {self._cluster.address} is lost: {self._lost}")

    def store(self) -> StoreUse:
        """Return what the object stores held when last asked."""
        return self._store

    def store_numbers(self) -> dict[str, float]:
        """Return the same for a run's metrics."""
        return self._store.numbers()

    def close(self, *, timeout_s: float = 5.0) -> None:
        """Stop watching; may be called again.

        A question that a lost cluster does not answer stays in its thread until Ray gives up, for up to a minute.
        """
        deadline_s = time.monotonic() + timeout_s
        self._signal(b"c")
        self._thread.join(timeout_s)
        asker = self._asker
        if asker is not None and self._lost is None:
            asker.join(max(deadline_s - time.monotonic(), 0.0))
        with self._guard:
            if self._is_closed:
                return
            self._is_closed = True
            for descriptor in (*self._daemons, self._woken, self._wake):
                os.close(descriptor)

    def __enter__(self) -> ClusterWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _watch(self) -> None:
        poll = select.poll()
        for descriptor in (*self._daemons, self._woken):
            poll.register(descriptor, select.POLLIN)
        asked_s = time.monotonic()
        while True:
            wait_s = self._answer_s if self._asker is not None else self._interval_s
            ready = [descriptor for descriptor, _ in poll.poll(max(asked_s + wait_s - time.monotonic(), 0.0) * 1000)]
            ended = [self._daemons[descriptor] for descriptor in ready if descriptor in self._daemons]
            if ended:
                why = f"its {' and '.join(sorted(ended))} on this machine has ended"
                if ended != [_HEAD]:
                    self._lose_node(why)
                self._lose(why)
            elif self._woken in ready:
                if os.read(self._woken, 1) == b"c":
                    return
                self._asker = None
            elif self._asker is not None:
                self._lose(f"its head (GCS) has not answered for {self._answer_s:g} s")
            else:
                asked_s = time.monotonic()
                self._ask()
            if self._lost is not None:
                return

    def _lose_node(self, why: str) -> None:
        """Kill the other daemons at once: Ray ends this process as soon as the head tells it of the node's end."""
        for descriptor in self._daemons:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        if self._on_node_lost is not None:
            self._on_node_lost(why)

    def _ask(self) -> None:
        """Have the cluster asked by a thread of its own: where its head is gone the call does not return."""
        self._asker = threading.Thread(target=self._answer, name="ray-question", daemon=True)
        self._asker.start()

    def _answer(self) -> None:
        try:
            nodes = {str(node["NodeID"]): node for node in self._ray.nodes()}
            total, free = self._ray.cluster_resources(), self._ray.available_resources()
        except Exception as error:  # Ray raises several classes where the head does not answer; the run ends
            self._lose(f"it cannot be asked for its nodes ({type(error).__name__}: {error})")
            self._signal(b"c")
            return
        living = {key: str(node["NodeManagerAddress"]) for key, node in nodes.items() if node["Alive"]}
        gone = [address for key, address in self._nodes.items() if key not in living]
        self._nodes = living
        if gone:
            self._lose(f"its node {', '.join(gone)} has ended")
        self._note_store(total, free)
        self._signal(b"a")

    def _note_store(self, total: dict[str, Any], free: dict[str, Any]) -> None:  # Any: numbers, as Ray has them
        size = int(total.get("object_store_memory", 0))
        folder = self._cluster.folder
        spilled = None if folder is None else _bytes_spilled(folder)
        store = self._store = StoreUse(size - int(free.get("object_store_memory", size)), size, spilled)
        if not self._is_warned and (store.spilled or store.used > _NEAR * store.total):
            self._is_warned = True
            logger.warning(
                "Ray's object store is full or nearly so (%s), and what does not fit is written to disk: that is slow. "
                "Let collectors send less at once (segment_rows), or give the store more memory.",
                store,
            )

    def _lose(self, why: str) -> None:
        with self._guard:
            if self._lost is not None or self._is_closed:
                return
            self._lost = why
        logger.error("the Ray cluster at %s is lost: %s", self._cluster.address, why)
        if self._on_lost is not None:
            self._on_lost()

    def _signal(self, what: bytes) -> None:
        with self._guard:
            if not self._is_closed:
                os.write(self._wake, what)


def _open_daemons(cluster: RayCluster) -> dict[int, str]:
    """Return descriptors that are ready to read when an own cluster's daemon has ended, and its name."""
    opened: dict[int, str] = {}
    for name, pid in cluster.processes.items():
        with suppress(ProcessLookupError):  # it has ended: nobody answers then
            opened[os.pidfd_open(pid)] = name
    return opened


def _bytes_spilled(folder: Path) -> int:
    total = 0
    for path in folder.glob("r/session_2*/ray_spilled_objects_*/*"):
        with suppress(OSError):  # deleted meanwhile
            total += path.stat().st_size
    return total
