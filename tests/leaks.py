"""Find what a test leaves behind in its process.

Benign, and therefore not looked at: the resource tracker and the fork server, which `multiprocessing` starts once and
keeps; threads of libraries that work to the process's end, native ones, which Python does not list, and those of
OpenTelemetry, which wandb starts; blocks of shared memory that other processes made (the
suite runs in several), told apart by who opened them or by the process id in their name ("torch_<pid>_...").
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

SHARED_MEMORY = Path("/dev/shm")
PROC = Path("/proc/self")

_made_blocks: set[str] = set()


def record_shared_memory(monkeypatch: Any) -> None:
    """Remember the names of blocks that this process makes from now on; Any: pytest.MonkeyPatch has no public home."""
    try:
        import _posixshmem  # type: ignore[import-not-found]
    except ImportError:  # no POSIX system
        return
    shm_open = _posixshmem.shm_open

    def record(path: str, flags: int, mode: int = 0o777) -> int:
        descriptor: int = shm_open(path, flags, mode)
        if flags & os.O_CREAT:
            _made_blocks.add(path.lstrip("/"))
        return descriptor

    monkeypatch.setattr(_posixshmem, "shm_open", record)


def threads() -> set[object]:
    return {thread for thread in threading.enumerate() if not thread.name.startswith("Otel")}


def child_processes() -> set[object]:
    # active_children also reaps those that have ended.
    pids: set[object] = {child.pid for child in multiprocessing.active_children()}
    for task in PROC.glob("task/*/children"):
        with suppress(OSError):  # a thread that ended between listing and reading
            pids.update(int(pid) for pid in task.read_text().split())
    servers: Any = (resource_tracker._resource_tracker, forkserver._forkserver)  # Any: their process ids are private
    return pids - {servers[0]._pid, servers[1]._forkserver_pid}


def sockets() -> set[object]:
    links: set[object] = set()
    for entry in PROC.glob("fd/*"):
        with suppress(OSError):  # a file that was closed between listing and reading
            link = os.readlink(entry)
            links.update([link] if link.startswith("socket:") else [])
    return links


def shared_memory() -> set[object]:
    names = os.listdir(SHARED_MEMORY) if SHARED_MEMORY.is_dir() else []
    return {name for name in names if name in _made_blocks or f"_{os.getpid()}_" in name}


LOOKS: dict[str, Callable[[], set[object]]] = {
    "threads": threads,
    "child processes": child_processes,
    "sockets": sockets,
    "shared memory": shared_memory,
}


def look(kinds: Iterable[str] = tuple(LOOKS)) -> dict[str, set[object]]:
    """Return what there is of each of these kinds."""
    return {kind: LOOKS[kind]() for kind in kinds}


def describe_leaks(before: dict[str, set[object]], *, grace_s: float) -> str:
    """Return what there is more than `before`, "" for nothing; what is about to end gets `grace_s` to do so."""
    deadline_s = time.monotonic() + grace_s
    while True:
        left = {kind: LOOKS[kind]() - there for kind, there in before.items()}
        if not any(left.values()) or time.monotonic() >= deadline_s:
            return "; ".join(f"{kind}: {', '.join(sorted(map(str, some)))}" for kind, some in left.items() if some)
        time.sleep(0.01)
