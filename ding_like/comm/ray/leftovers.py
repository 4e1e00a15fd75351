"""End what is left of a Ray cluster of this machine: its processes and its folder.

python -I -S leftovers.py FOLDER: wait until standard input ends, then do that. The process that started the cluster
holds the other end of the pipe, so that the cluster ends with it, also when it is killed. That program has only the
standard library, to stay small while it waits.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

MARK = "DING_RAY_CLUSTER"  # in the environment of a cluster's processes: the folder of the cluster

_PROC = Path("/proc")


def find_processes(folder: str | os.PathLike[str]) -> list[int]:
    """Return the ids of the living processes of the cluster of a folder, and of their children; none without /proc."""
    pids = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()] if _PROC.is_dir() else []
    return [pid for pid in pids if pid != os.getpid() and _is_of(pid, os.fspath(folder))]


def end_cluster(folder: str | os.PathLike[str], *, timeout_s: float) -> list[int]:
    """Kill a cluster's processes, then delete its folder; return the ids of those that are left after `timeout_s`."""
    end_s = time.monotonic() + timeout_s
    # A process that is killed may have started another one just before.
    while (found := find_processes(folder)) and time.monotonic() < end_s:
        for pid in found:
            with suppress(OSError):  # it has ended
                _kill(pid, os.fspath(folder), end_s)
    shutil.rmtree(folder, ignore_errors=True)
    return found


def _is_of(pid: int, folder: str) -> bool:
    with suppress(OSError):  # it has ended, or is another user's
        if f"{MARK}={folder}".encode() in (_PROC / str(pid) / "environ").read_bytes().split(b"\0"):
            return True
        # Ray's agents write their titles over their environment, and have inherited the raylet's log.
        links = [os.readlink(link) for link in (_PROC / str(pid) / "fd").iterdir() if link.is_symlink()]
        return any(link.startswith(f"{folder}/") and "/logs/raylet." in link for link in links)
    return False


def _kill(pid: int, folder: str, end_s: float) -> None:
    # A descriptor refers to this very process, also when another one gets its id meanwhile.
    descriptor = os.pidfd_open(pid)
    try:
        if _is_of(pid, folder):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            select.select([descriptor], [], [], max(end_s - time.monotonic(), 0.0))
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    sys.stdin.buffer.read()
    end_cluster(sys.argv[1], timeout_s=10.0)
