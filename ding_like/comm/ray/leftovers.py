"""End what is left of a Ray cluster of this machine: its processes and its folder.

python -I -S leftovers.py FOLDER: wait until standard input ends, then do that. So a process that started a cluster has
it cleaned up also when it is killed. That program has only the standard library, to stay small while it waits.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

MARK = "DING_RAY_CLUSTER"  # in the environment of a cluster's processes: the folder of the cluster
DONE = b"done"  # said to the program that waits: there is nothing left to end

_PROC = Path("/proc")


def find_processes(folder: str | os.PathLike[str]) -> list[int]:
    """Return the ids of the living processes of the cluster of a folder, and of what they have started.

    They are known by the mark in their environment, or by the log of the raylet that they have open, whoever their
    parent is now. Without /proc none are found.
    """
    mark = f"{MARK}={os.fspath(folder)}".encode()
    found = []
    for entry in _PROC.iterdir() if _PROC.is_dir() else ():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):  # it has ended, or is another user's
                is_marked = mark in (entry / "environ").read_bytes().split(b"\0")
                # Ray's agents write their titles over their environment, and have inherited the raylet's log.
                if is_marked or _has_log_of_raylet(entry, os.fspath(folder)):
                    found.append(int(entry.name))
    return found


def end_processes(folder: str | os.PathLike[str], *, timeout_s: float) -> list[int]:
    """Kill the processes of the cluster of a folder; return the ids of those that are still there after the time."""
    deadline_s = time.monotonic() + timeout_s
    # What is killed may have started another one just before.
    while True:
        found = find_processes(folder)
        if not found or time.monotonic() > deadline_s:
            return found
        _kill(found, folder, deadline_s)


def remove_folder(folder: str | os.PathLike[str]) -> None:
    """Delete a cluster's folder; a second call does nothing."""
    shutil.rmtree(folder, ignore_errors=True)


def _has_log_of_raylet(process: Path, folder: str) -> bool:
    for descriptor in (process / "fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            link = os.readlink(descriptor)
            if link.startswith(f"{folder}/") and "/logs/raylet." in link:
                return True
    return False


def _kill(pids: Sequence[int], folder: str | os.PathLike[str], deadline_s: float) -> None:
    # A descriptor means this very process, also when another one gets its id meanwhile.
    descriptors = {}
    try:
        for pid in pids:
            with suppress(OSError):
                descriptors[pid] = os.pidfd_open(pid)
        still = set(find_processes(folder))
        for pid, descriptor in descriptors.items():
            if pid in still:
                with suppress(OSError):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        for pid, descriptor in descriptors.items():
            _wait(descriptor, deadline_s)
            with suppress(OSError):  # another process's child, or waited for elsewhere
                os.waitpid(pid, os.WNOHANG)
    finally:
        for descriptor in descriptors.values():
            os.close(descriptor)


def _wait(descriptor: int, deadline_s: float) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.poll(max(deadline_s - time.monotonic(), 0.0) * 1000)


def main() -> None:
    """Wait until whoever started this has ended or says that nothing is left."""
    folder = sys.argv[1]
    said = sys.stdin.buffer.read()
    if said != DONE:
        end_processes(folder, timeout_s=10.0)
        remove_folder(folder)


if __name__ == "__main__":
    main()
