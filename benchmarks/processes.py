"""Count the processor time and the memory of all processes that a command starts, those that have ended included.

Where the user may make a control group (cgroup 2), the kernel counts: exact, and no process leaves it. Elsewhere
`Tree` follows parents and children, which is near, not exact.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_MEMORY_EVERY_S = 0.25  # to sum the memory of ten processes takes 10 to 20 ms
_TREE_EVERY_S = 0.05


class Group(Protocol):
    """All processes that one command has started, and that they have started."""

    how: str  # "cgroup" or "tree"

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs this one within the group."""

    def cpu_s(self) -> float:
        """Return the seconds of processors that the group has used until now, by processes that have ended too."""

    def pids(self) -> list[int]:
        """Return the processes that run now."""

    def close(self) -> None:
        """Give back what counting takes; the processes have ended."""


class ControlGroup:
    """Counter of the kernel, in a control group of its own below this process's."""

    how = "cgroup"

    def __init__(self, parent: Path) -> None:
        """Make the group. Raises OSError where that is not allowed."""
        _remove_left(parent)
        self.folder = parent / f"bench-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.folder.mkdir()
        try:
            # Not allowed to move a process in, or nothing counted: no use.
            self._moves_in()
            self.cpu_s()
        except (OSError, subprocess.CalledProcessError, ValueError) as error:
            self.folder.rmdir()
            raise OSError(f"{self.folder} counts nothing: {error}") from error

    def _moves_in(self) -> None:
        subprocess.run(self.command(["true"]), check=True, capture_output=True)

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command behind a shell that moves itself into the group first: nothing runs outside it."""
        return ["/bin/sh", "-c", 'echo $$ > "$0"/cgroup.procs && exec "$@"', str(self.folder), *command]

    def cpu_s(self) -> float:
        """Return the seconds of processors that the group has used."""
        fields = dict(line.split() for line in (self.folder / "cpu.stat").read_text().splitlines())
        if "usage_usec" not in fields:
            raise ValueError("cpu.stat has no usage_usec")
        return int(fields["usage_usec"]) / 1e6

    def pids(self) -> list[int]:
        """Return the processes that run now."""
        return [int(pid) for pid in (self.folder / "cgroup.procs").read_text().split()]

    def close(self) -> None:
        """Remove the group."""
        deadline = time.monotonic() + 5.0
        while self.folder.exists():
            try:
                self.folder.rmdir()
            except OSError:  # a process that has ended is in it until it is reaped
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)


def _remove_left(parent: Path) -> None:
    """Remove groups whose maker was killed; those with processes in them cannot be, and stay."""
    for folder in parent.glob("bench-*-*"):
        if not (_PROC / folder.name.split("-")[1]).exists():
            with suppress(OSError):
                folder.rmdir()


class Tree:
    """Follow parents and children in /proc, with this process in place of a parent that has gone.

    Two counts are kept, neither of which is ever too much: what was last seen of each process, which misses the last
    `_TREE_EVERY_S` of each; and what living ones and parents that waited for their children say, which misses children
    that no process waited for (SIGCHLD ignored). The larger one is returned.
    """

    how = "tree"

    def __init__(self) -> None:
        import ctypes

        if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
            raise OSError("processes whose parent has ended cannot be adopted")
        self._lock = threading.Lock()
        self._before = set(_children_of(os.getpid()))
        self._reaped_before = _reaped_s()
        self._seen: dict[tuple[int, int], float] = {}
        self._most = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="process tree", daemon=True)
        self._thread.start()

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command as it is."""
        return list(command)

    def cpu_s(self) -> float:
        """Return the larger one of two counts, which does not fall."""
        self._look()
        return self._most

    def pids(self) -> list[int]:
        """Return the processes that run now."""
        stats = _stats()
        return [pid for pid in self._descendants(stats) if stats[pid].state != "Z"]

    def close(self) -> None:
        """Follow no more."""
        self._done.set()
        self._thread.join(5.0)

    def _descendants(self, stats: Mapping[int, _Stat]) -> set[int]:
        parents = {pid: stat.parent for pid, stat in stats.items()}
        found = {pid for pid, parent in parents.items() if parent == os.getpid()} - self._before
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        return found

    def _follow(self) -> None:
        while not self._done.wait(_TREE_EVERY_S):
            self._look()

    def _look(self) -> None:
        with self._lock:
            # What was waited for is read first: a process that is there afterwards is not among it, and counts once.
            reaped_s, earlier = _reaped_s() - self._reaped_before, _stats()
            reaped_s += sum(earlier[pid].reaped_s for pid in self._descendants(earlier))
            stats = _stats()
            mine = self._descendants(stats)
            for pid in mine:
                self._seen[pid, stats[pid].started] = stats[pid].own_s
            told_s = reaped_s + sum(stats[pid].own_s for pid in mine)
            self._most = max(self._most, sum(self._seen.values()), told_s)
            self._reap({pid for pid in mine if stats[pid].state == "Z" and stats[pid].parent == os.getpid()})

    def _reap(self, ended: set[int]) -> None:
        # A child of `subprocess` is its own to wait for; all others were adopted.
        owned = {child.pid for child in _popens()}
        for pid in ended - owned:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


_running: list[subprocess.Popen[Any]] = []  # Any: text or bytes, whatever was asked for


def _popens() -> list[subprocess.Popen[Any]]:
    return list(_running)


class _Stat:
    """Readings of a process from /proc."""

    __slots__ = ("own_s", "parent", "reaped_s", "started", "state")

    def __init__(self, text: str) -> None:
        # The name, in brackets, may hold anything.
        fields = text.rpartition(")")[2].split()
        self.state, self.parent = fields[0], int(fields[1])
        user, system, reaped_user, reaped_system = (int(each) / _TICKS for each in fields[11:15])
        self.own_s, self.reaped_s, self.started = user + system, reaped_user + reaped_system, int(fields[19])


def _stats() -> dict[int, _Stat]:
    found = {}
    for entry in os.scandir(_PROC):
        if entry.name.isdigit():
            with suppress(OSError):
                found[int(entry.name)] = _Stat(Path(entry.path, "stat").read_text())
    return found


def own_cpu_s(pids: Sequence[int]) -> float:
    """Return the seconds of processors that processes which run now have used themselves, without their children."""
    stats = _stats()
    return sum(stats[pid].own_s for pid in pids)


def _children_of(pid: int) -> list[int]:
    return [child for child, stat in _stats().items() if stat.parent == pid]


def _reaped_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def make_group() -> Group:
    """Return a way to count, the exact one where it is possible. Raises OSError where nothing is (no Linux)."""
    if (parent := _own_control_group()) is not None:
        with suppress(OSError):
            return ControlGroup(parent)
    if sys.platform != "linux":
        raise OSError("processor time of several processes is counted on Linux only")
    return Tree()


def _own_control_group() -> Path | None:
    """Return the folder of this process's group (cgroup 2), None where there is no such tree."""
    with suppress(OSError):
        mounts = [line.split(" - ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        root = next((left.split()[4] for left, right in mounts if right.startswith("cgroup2 ")), None)
        own = next(
            (line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")), None
        )
        if root is not None and own is not None:
            return Path(root) / own.lstrip("/")
    return None


class Measured:
    """Run one command in a group, and know its processor time and the most memory that it took."""

    def __init__(self, command: Sequence[str], *, group: Group | None = None, **popen: Any) -> None:
        """Start the command; `popen` is for subprocess.Popen (Any: its arguments are of many types)."""
        self.group = make_group() if group is None else group
        self.most_memory_bytes = 0
        self.started_s = time.perf_counter()
        self.process = subprocess.Popen(self.group.command(command), **popen)
        _running.append(self.process)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch_memory, name="memory", daemon=True)
        self._thread.start()

    def end(self, *, timeout_s: float) -> list[str]:
        """Wait until all processes have ended and return the names of those that had to be killed for it.

        They have `timeout_s` from now on. Their processor time counts until the end.
        """
        deadline = time.monotonic() + timeout_s
        while (left := self._left()) and time.monotonic() < deadline:
            time.sleep(0.02)
        names = sorted(_name(pid) for pid in left)
        while left := self._left():
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        self._done.set()
        self._thread.join(5.0)
        self.process.wait(5.0)
        self.cpu_s = self.group.cpu_s()
        _running.remove(self.process)
        self.group.close()
        return names

    def _left(self) -> list[int]:
        # The first process may not have moved itself into the group yet.
        itself = [self.process.pid] if self.process.poll() is None else []
        return [*itself, *(pid for pid in self.group.pids() if pid not in itself)]

    def _watch_memory(self) -> None:
        while True:
            with suppress(OSError):
                self.most_memory_bytes = max(self.most_memory_bytes, memory_of(self.group.pids()))
            if self._done.wait(_MEMORY_EVERY_S):
                return


def memory_of(pids: Sequence[int]) -> int:
    """Return the bytes that processes take together: each page counts once, shared ones by shares (PSS)."""
    total = 0
    for pid in pids:
        with suppress(OSError):  # it has ended
            found = re.search(r"^Pss:\s+(\d+) kB", (_PROC / str(pid) / "smaps_rollup").read_text(), re.MULTILINE)
            total += 1024 * int(found[1]) if found else 0
    return total


def _name(pid: int) -> str:
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").split()
    except OSError:
        return "?"
    return Path(words[0]).name if words else "?"
