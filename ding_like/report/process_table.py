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

from ding_like.report.details import ProcessReport, ProcessState

_WINDOW_S = 10.0  # over which rates are measured
_SILENT_S = 10.0  # without a message of a process on another machine, until it is called silent
_LOST_SHOWN_S = 60.0  # that a process which has gone stays in the table
_MOST_LOST = 20  # of them
_GONE = "it is gone; another one may have taken its place"
_HERE = ("", socket.gethostname())
# Modules that are run as processes of their own, as their command lines have it -> what these are called.
_MODULES = {"from ding_like.envs.manager.process import main": "envs", "-m ding_like.utils.fork_server": "fork server"}
_FORK_SERVER = "ding-fork-serve"  # the system keeps 15 letters
_OF_RAY = ("ray::DashboardAgent", "ray::RuntimeEnvAgent", "ray::IDLE")  # that are no workers
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
        self._is_ending = False  # processes end as they should
        self._own = psutil.Process()
        self._known: dict[int, psutil.Process] = {}  # by pid; each keeps its last CPU time
        self._names: dict[int, tuple[str, str]] = {}  # of children by pid: the name, and with its number
        self._num_named = Counter[str]()
        # By pid, and by the name of one that has none.
        self._counts: dict[int | str, deque[tuple[float, int, int]]] = {}
        self._shown: dict[int | str, ProcessRow] = {}  # of the last scan
        self._lost: dict[int | str, tuple[float, ProcessRow]] = {}  # and when it was found to be gone

    def scan(self, reports: Sequence[ProcessReport], *, is_ending: bool = False) -> list[ProcessRow]:
        """Return a row for this process, each that is reported, each other child of it, and those lost lately.

        Once the run `is_ending` a process that is gone has ended, and is not lost.
        """
        self._is_ending = is_ending
        now_s = self._clock()
        known, children = {report.pid for report in reports}, self._children()
        rows = [self._row(ProcessReport("main", os.getpid()))]
        rows += [self._with_rates(self._row(report), now_s) for report in reports]
        others = [child for child in children if child.pid not in known]
        named = [(self._name_of(child), child) for child in others]
        rows += [self._row(ProcessReport(self._numbered(name, child.pid), child.pid)) for name, child in named if name]
        rest = [self._row(ProcessReport(_program_of(child), child.pid)) for name, child in named if not name]
        rows += [each for each in [_summed(rest)] if each is not None]
        self._note_lost(rows, now_s)
        pids = {row.pid for row in rows + rest}
        self._known = {pid: process for pid, process in self._known.items() if pid in pids}
        self._names = {pid: names for pid, names in self._names.items() if pid in pids}
        return rows + [row for _, row in self._lost.values()]

    def scan_again(self, rows: Sequence[ProcessRow]) -> list[ProcessRow]:
        """Return the rows of an earlier scan after the run has ended: what is gone by now has ended with it."""
        self._is_ending, found = True, list[ProcessRow]()
        for row in rows:
            if row.state == "lost" or row.host != _HERE[1] or row.pid in (None, os.getpid()):
                found.append(row)
                continue
            state = self._row(ProcessReport(row.name, row.pid)).state
            found.append(replace(row, state=state, cpu=None, heartbeat_s=None))
        return found

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
            return self._gone(row)
        except psutil.AccessDenied:
            return row
        if status in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return self._gone(row)
        is_paused = status in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
        return replace(row, state="paused" if is_paused else report.state, cpu=cpu, memory_bytes=memory)

    def _gone(self, row: ProcessRow) -> ProcessRow:
        """Return the row of a process that is gone, without its last numbers."""
        state: ProcessState = "ended" if self._is_ending else "lost"
        note = row.note if row.state == "lost" else "" if self._is_ending else _GONE
        return ProcessRow(row.name, row.pid, row.host, state, note=note)

    def _with_rates(self, row: ProcessRow, now_s: float) -> ProcessRow:
        """Return a row with the rates of its counts, where it has counts and no rates."""
        if row.env_steps is None or row.env_steps_per_s is not None:
            return row
        counts = self._counts.setdefault(row.pid or row.name, deque())
        counts.append((now_s, row.env_steps, row.rows or 0))
        while len(counts) > 2 and now_s - counts[1][0] >= _WINDOW_S:
            counts.popleft()
        seconds = max(now_s - counts[0][0], 1e-9)
        if len(counts) < 2:
            return row
        (_, steps, stored), (_, new_steps, new_stored) = counts[0], counts[-1]
        steps_per_s, rows_per_s = (new_steps - steps) / seconds, (new_stored - stored) / seconds
        return replace(row, env_steps_per_s=steps_per_s, rows_per_s=rows_per_s)

    def _note_lost(self, rows: Iterable[ProcessRow], now_s: float) -> None:
        """Keep the rows of processes that were there and are gone, for a minute; of a run that is ending, all."""
        present: dict[int | str, ProcessRow] = {row.pid or row.name: row for row in rows}
        for key, row in self._shown.items():
            if key in present or row.pid is None or (row.state == "ended" and not self._is_ending):
                continue
            if row.state not in ("lost", "ended"):
                row = self._gone(row)
            self._lost[key] = now_s, row
        self._shown = present
        self._counts = {key: counts for key, counts in self._counts.items() if key in present}
        kept = [(key, each) for key, each in self._lost.items() if key not in present]
        self._lost = dict([each for each in kept if now_s - each[1][0] < _LOST_SHOWN_S][-_MOST_LOST:])

    def _numbered(self, name: str, pid: int) -> str:
        """Return a name, with a number behind it for each process but the first that has it."""
        if self._names.get(pid, ("", ""))[0] != name:
            self._num_named[name] += 1
            number = self._num_named[name]
            self._names[pid] = name, name if number == 1 else f"{name} {number}"
        return self._names[pid][1]

    @staticmethod
    def _name_of(process: psutil.Process) -> str:
        """Return what a child that no mode reports is called; "" for one that is not of this package."""
        with suppress(psutil.Error, ValueError, LookupError):  # one that has ended; another program's words
            name, words = process.name(), process.cmdline()
            if name in _OF_RAY:
                return ""
            if name.startswith(("ding-", "ray::")) and name != _FORK_SERVER:
                return name.removeprefix("ding-")
            if _CHILD_RUN in words:
                worker = json.loads(words[-1])["worker"]
                return f"rank {worker.get('rank') or worker['environment']['RANK']}"
            line = " ".join(words)
            return next((name for text, name in _MODULES.items() if text in line), "")
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
