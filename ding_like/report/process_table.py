"""Table of a run's processes: what its mode reports, and what the system knows of those on this machine."""

from __future__ import annotations

import json
import os
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import psutil

from ding_like.report.details import ProcessReport

_WINDOW_S = 10.0  # over which rates are measured
_SILENT_S = 10.0  # without a message of a process on another machine, until it is called silent
_LOST_SHOWN_S = 60.0  # that a process which has gone stays in the table
_MOST_LOST = 20  # of them
_HERE = ("", socket.gethostname())
# Modules that are run as processes of their own -> what these are called.
_MODULES = {"ding_like.envs.manager.process": "envs", "ding_like.utils.fork_server": "starter of workers"}
_CHILD_RUN = "ding_like.entry.child_run"


@dataclass(frozen=True)
class ProcessRow(ProcessReport):
    """Process of a run with what the system measures of it."""

    cpu: float | None = None  # cores that it uses
    memory_bytes: int | None = None


class ProcessTable:
    """Table of a run's processes, renewed by `scan`; for use by one thread at a time.

    Processes on this machine are looked up in the system: what is stopped is "paused", what is gone is "lost", and
    stays in the table for a minute. Of other machines the run's heartbeats are all that is known.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._own = psutil.Process()
        self._known: dict[int, psutil.Process] = {}  # by pid; each keeps its last CPU time
        self._counts: dict[tuple[str, int | None], deque[tuple[float, int, int]]] = {}
        self._shown: dict[tuple[str, int | None], ProcessRow] = {}  # of the last scan
        self._lost: dict[tuple[str, int | None], tuple[float, ProcessRow]] = {}

    def scan(self, reports: Sequence[ProcessReport]) -> list[ProcessRow]:
        """Return a row for this process, each that is reported, each other child of it, and those lost lately."""
        now_s = self._clock()
        known, children = {report.pid for report in reports}, self._children()
        rows = [self._row(ProcessReport("main", os.getpid()))]
        rows += [self._with_rates(self._row(report), now_s) for report in reports]
        others = [child for child in children if child.pid not in known]
        named = [(self._name_of(child), child) for child in others]
        rows += [self._row(ProcessReport(name, child.pid)) for name, child in named if name]
        rest = [self._row(ProcessReport(_program_of(child), child.pid)) for name, child in named if not name]
        rows += [each for each in [_summed(rest)] if each is not None]
        self._note_lost(rows, now_s)
        self._known = {pid: process for pid, process in self._known.items() if pid in {row.pid for row in rows + rest}}
        return _numbered(rows) + [row for _, row in self._lost.values()]

    def _children(self) -> list[psutil.Process]:
        with suppress(psutil.Error):
            return self._own.children(recursive=True)
        return []

    def _row(self, report: ProcessReport) -> ProcessRow:
        row = ProcessRow(**vars(report))
        if report.host not in _HERE:
            is_silent = report.state == "running" and (report.heartbeat_s or 0.0) > _SILENT_S
            return replace(row, state="silent") if is_silent else row
        row = replace(row, host=_HERE[1])
        if report.pid is None or report.state == "ended":
            return row
        try:
            process = self._known.get(report.pid)
            if process is None or not process.is_running():  # another one may have the id by now
                process = self._known[report.pid] = psutil.Process(report.pid)
                process.cpu_percent(None)
                cpu = None
            else:
                cpu = round(process.cpu_percent(None) / 100, 3)
            status, memory = process.status(), process.memory_info().rss
        except psutil.NoSuchProcess:
            return replace(row, state="lost")
        except psutil.AccessDenied:
            return row
        if status in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return replace(row, state="lost")
        is_paused = status in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
        return replace(row, state="paused" if is_paused else report.state, cpu=cpu, memory_bytes=memory)

    def _with_rates(self, row: ProcessRow, now_s: float) -> ProcessRow:
        """Return a row with the rates of its counts, where it has counts and no rates."""
        if row.env_steps is None or row.env_steps_per_s is not None:
            return row
        counts = self._counts.setdefault((row.name, row.pid), deque())
        counts.append((now_s, row.env_steps, row.rows or 0))
        while len(counts) > 2 and now_s - counts[1][0] >= _WINDOW_S:
            counts.popleft()
        seconds = max(now_s - counts[0][0], 1e-9)
        if len(counts) < 2:
            return row
        (_, steps, stored), (_, new_steps, new_stored) = counts[0], counts[-1]
        rates = {"env_steps_per_s": (new_steps - steps) / seconds, "rows_per_s": (new_stored - stored) / seconds}
        return replace(row, **rates)

    def _note_lost(self, rows: Iterable[ProcessRow], now_s: float) -> None:
        """Keep the rows of processes that were there and are gone, for a minute."""
        present = {(row.name, row.pid): row for row in rows if row.pid is not None}
        for key, row in self._shown.items():
            if key not in present and row.state not in ("ended", "lost"):
                gone = replace(row, state="lost", cpu=None, memory_bytes=None, env_steps_per_s=None, rows_per_s=None)
                self._lost[key] = now_s, replace(gone, note="it is gone; another one may have taken its place")
            elif key not in present and row.state == "lost":
                self._lost[key] = now_s, row
        self._shown = present
        self._counts = {key: counts for key, counts in self._counts.items() if key in present}
        kept = [(key, each) for key, each in self._lost.items() if key not in present]
        self._lost = dict([each for each in kept if now_s - each[1][0] < _LOST_SHOWN_S][-_MOST_LOST:])

    def _name_of(self, process: psutil.Process) -> str:
        """Return what a child that no mode reports is called; "" for one that is not of this package."""
        with suppress(psutil.Error, ValueError, LookupError, TypeError):
            name, words = process.name(), process.cmdline()
            if name.startswith(("ding-", "ray::")):
                return name.removeprefix("ding-")
            module = words[words.index("-m") + 1]
            if module == _CHILD_RUN:
                worker = json.loads(words[-1])["worker"]
                rank = worker.get("rank") or worker["environment"]["RANK"]
                return f"rank {rank}"
            return _MODULES.get(module, "")
        return ""


def _program_of(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return process.name()
    return "?"


def _summed(rows: Sequence[ProcessRow]) -> ProcessRow | None:
    """Return one row for processes that are no workers, such as Ray's own; None for none."""
    if not rows:
        return None
    names = Counter(row.name for row in rows)
    listed = ", ".join(name if count == 1 else f"{count} {name}" for name, count in sorted(names.items()))
    return ProcessRow(
        f"{len(rows)} helpers", host=_HERE[1], note=listed,
        cpu=round(sum(row.cpu or 0.0 for row in rows), 3),
        memory_bytes=sum(row.memory_bytes or 0 for row in rows),
    )  # fmt: skip


def _numbered(rows: Sequence[ProcessRow]) -> list[ProcessRow]:
    """Return the rows, with numbers behind names that several have."""
    counts, seen = Counter(row.name for row in rows), Counter[str]()
    found = []
    for row in rows:
        seen[row.name] += 1
        found.append(replace(row, name=f"{row.name} {seen[row.name]}") if counts[row.name] > 1 else row)
    return found
