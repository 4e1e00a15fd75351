"""Be a program with a Ray cluster, in a process of its own: python -m tests.comm.ray.cluster_child SCENE [ADDRESS].

A scene says what it sees as lines of JSON, and goes on at each line that it is sent.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ding_like.comm.ray.actors import ClusterLoss, load_ray, start_actor, value_of, wait_first
from ding_like.comm.ray.cluster import ClusterWatch, RayCluster
from ding_like.comm.ray.leftovers import find_processes
from ding_like.errors import DingError
from tests.support import wait_until

AMOUNTS: dict[str, Any] = dict(num_cpus=2, object_store_bytes=100 * 2**20)
DAEMONS = {"gcs_server", "raylet", "ray::DashboardA", "ray::RuntimeEnv"}  # by their /proc/PID/comm


class Worker:
    """Worker with a child process, as a collector has whose envs are processes."""

    def __init__(self) -> None:
        self._child = subprocess.Popen(["sleep", "300"])

    def ready(self) -> dict[str, Any]:
        return {"pid": os.getpid(), "nice": os.nice(0), "child": self._child.pid}


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def variables() -> dict[str, str]:
    return dict(os.environ)


def daemons(folder: Path | None) -> dict[str, int]:
    """Return the process ids of a cluster's daemons by their names."""
    assert folder is not None
    names = {Path(f"/proc/{pid}/comm").read_text().strip(): pid for pid in find_processes(folder)}
    return {name: pid for name, pid in names.items() if name in DAEMONS}


def start_worker() -> dict[str, Any]:
    actor = start_actor(Worker, title="Worker", options={"num_cpus": 1}, prepare=None)
    ref = actor.call.remote("ready")
    kept.extend([actor, ref])  # Ray ends an actor without a handle
    while not wait_first([ref], timeout_s=60.0):
        pass
    described: dict[str, Any] = value_of(ref)
    return described


kept: list[Any] = []


def open_to_others(folder: Path) -> list[str]:
    """Return the files that another user could open: those that are readable, in folders that may be entered."""
    if not folder.stat().st_mode & (stat.S_IXGRP | stat.S_IXOTH):
        return []
    found = []
    for path in folder.rglob("*"):
        if path.is_file() and path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
            found.append(str(path))
    return found


def life() -> None:
    """Open, use and close a cluster, twice, and say what was seen at each point."""
    before, heard = variables(), []
    signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    fell = []
    for number in range(2):
        cluster = RayCluster(**AMOUNTS)
        assert cluster.folder is not None
        if number == 0:
            worker = start_worker()
            os.kill(os.getpid(), signal.SIGTERM)
            pids = find_processes(cluster.folder)
            token = (cluster.folder / "token").stat().st_mode
            ray = load_ray()
            say(
                folder=str(cluster.folder), pids=pids, worker=worker, heard=len(heard),
                token=stat.S_IMODE(token), mode=os.environ.get("RAY_AUTH_MODE"),
                top=stat.S_IMODE(cluster.folder.stat().st_mode), readable=open_to_others(cluster.folder),
                default=os.path.exists(f"/tmp/ray/{ray.get_runtime_context().get_session_name()}"),
            )  # fmt: skip
        cluster.close()
        fell.append([cluster.folder.exists(), find_processes(cluster.folder)])
    after = variables()
    changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    say(closed=fell, changed=changed, threads=[thread.name for thread in threading.enumerate()])


def refusal(call: Callable[[], object]) -> list[str]:
    """Return the kind and the message of the error that a call ends with."""
    try:
        call()
    except DingError as error:
        return [type(error).__name__, str(error)]
    return []


def hold() -> None:
    """Hold a cluster until it is lost or a line comes; close it, and say how long each took."""
    cluster = RayCluster(**AMOUNTS)
    watch = ClusterWatch(cluster, interval_s=1.0)
    worker = start_worker()
    keeper: Any = cluster._keeper
    say(
        folder=str(cluster.folder), address=cluster.address, processes=daemons(cluster.folder), worker=worker,
        keeper=keeper.pid,
    )  # fmt: skip
    sys.stdin.readline()
    noticed = wait_until(lambda: watch.lost is not None, "the loss of the cluster") is None
    said = watch.describe_loss()
    ClusterLoss.note(watch.lost or "")
    watch.close()
    cluster.close()
    say(noticed=noticed, said=said)


def attach(address: str) -> None:
    """Attach and detach; say what came of it."""
    try:
        with RayCluster(address) as cluster:
            ray = load_ray()
            say(attached=cluster.address, is_own=cluster.is_own, cpus=ray.cluster_resources()["CPU"])
    except DingError as error:
        say(error=[type(error).__name__, str(error)])


def attach_as_older(address: str) -> None:
    """Attach as another version of Ray would."""
    load_ray().__version__ = "2.0.0"
    attach(address)


def borrow(address: str) -> None:
    """Open a cluster in a process that called ray.init itself."""
    ray = load_ray()
    ray.init(address=address)
    other = refusal(lambda: RayCluster("10.0.0.1:6379"))
    with RayCluster() as borrowed:
        same = borrowed.address == address and not borrowed.is_own
    say(same=same, still=ray.is_initialized(), other=other)
    ray.shutdown()


SCENES: dict[str, Callable[..., None]] = {
    scene.__name__: scene
    for scene in (life, hold, attach, attach_as_older, borrow)
}  # fmt: skip

if __name__ == "__main__":
    SCENES[sys.argv[1]](*sys.argv[2:])
