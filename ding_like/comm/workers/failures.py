"""Failed workers: the policy for them, the budget of restarts, the log, and the places of their errors."""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np

import ding_like
from ding_like.config.system import FROM_0, SECONDS

FAILURES_FILE = "failures.jsonl"
_WINDOW_S = 600.0  # of a restart budget

_OURS = str(Path(ding_like.__file__).parent)
_FRAME = re.compile(r'File "(.+?)", line (\d+), in (\S+)')

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FailurePolicy:
    """Policy for workers that die or hang.

    At most `restarts_per_10min` failed workers are restarted in ten minutes; at the next failure a run stops, or
    continues with the remaining workers (`when_spent` "shrink"). A worker must be ready `start_timeout_s` after its
    start, and answer a call within `step_timeout_s`.
    """

    restarts_per_10min: Annotated[int, FROM_0] = 3
    start_timeout_s: Annotated[float, SECONDS] = 60.0
    step_timeout_s: Annotated[float, SECONDS] = 120.0
    when_spent: Literal["stop", "shrink"] = "stop"


class RestartBudget:
    """Number of restarts that are left in a sliding window of ten minutes; for use by one thread at a time."""

    def __init__(self, restarts_per_10min: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._number, self._clock = restarts_per_10min, clock
        self._spent_s: deque[float] = deque()

    def spend(self) -> bool:
        """Take one restart; return False if none is left."""
        now = self._clock()
        while self._spent_s and now - self._spent_s[0] >= _WINDOW_S:
            self._spent_s.popleft()
        if len(self._spent_s) >= self._number:
            return False
        self._spent_s.append(now)
        return True


@dataclass
class FailureRow:
    """Record of one failed worker."""

    worker: str
    kind: str  # "collector" for example: the name without its number
    role: str  # "working" or "starting"
    how: str  # the failure was noticed
    detail: str  # reported by the host of the worker
    rows_lost: int  # that were requested and never returned
    replaced_by: str | None  # None: not replaced (yet)
    replaced_ms: float | None  # from the failure until the replacement was ready
    time: str  # of day, with the zone
    since_start_s: float


def describe_spent(row: FailureRow, policy: FailurePolicy, *, least: int) -> str:
    """Return why a run ends with this failure, for which the budget was too small, and how to fix it."""
    ways = ["raise restarts_per_10min"]
    if policy.when_spent == "stop":
        ways.append("set when_spent='shrink' to continue with the remaining workers")
    else:
        ways[0] += f" (at least {least} must work)"
    return (
        f"{row.worker} ({row.role}) was lost: {row.how}{f' ({row.detail})' if row.detail else ''}. Workers of kind "
        f"'{row.kind}' were replaced as often in the last 10 minutes as failure.restarts_per_10min="
        f"{policy.restarts_per_10min} allows. Find what ends them (an env that fails, too little memory; "
        f"{FAILURES_FILE} has a row for each), or {', or '.join(ways)}."
    )


class FailureLog:
    """Thread-safe log of failed workers, in memory and in a file of JSON lines, which keeps rows of earlier processes.

    A file that cannot be written ends no run: one warning is logged, and the rows are written with the next one.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = None if path is None else Path(path)
        self._clock, self._started_s, self._lock = clock, clock(), threading.Lock()
        self._rows: list[FailureRow] = []
        self._earlier: int | None = None  # size in bytes of the rows of earlier processes
        self._has_warned = False

    def note(
        self, worker: str, *, how: str, replaced_by: str | None = None, replaced_ms: float | None = None,
        rows_lost: int = 0, role: str = "working", detail: str = "",
    ) -> FailureRow:  # fmt: skip
        """Add a row, and return it for `amend`."""
        row = FailureRow(
            worker, worker.rstrip("0123456789"), role, how, detail, rows_lost, replaced_by, replaced_ms,
            time.strftime("%Y-%m-%d %H:%M:%S%z"), round(self._clock() - self._started_s, 3),
        )  # fmt: skip
        with self._lock:
            self._rows.append(row)
            self._write()
        return row

    def amend(self, row: FailureRow, **changes: str | float | None) -> None:
        """Change columns of a row of this log, and its line in the file."""
        with self._lock:
            for name, value in changes.items():
                setattr(row, name, value)
            self._write()

    def _write(self) -> None:
        """Write all rows of this process behind those of earlier ones."""
        if self._path is None:
            return
        try:
            with open(self._path, "r+b", opener=_open_private) as file:
                if self._earlier is None:  # without half a line of a process that was killed
                    self._earlier = file.read().rfind(b"\n") + 1
                file.seek(self._earlier)
                file.writelines(json.dumps(asdict(row)).encode() + b"\n" for row in self._rows)
                file.truncate()
        except OSError as error:
            if not self._has_warned:
                self._has_warned = True
                _logger.warning(
                    "%s cannot be written (%s): failed workers are still counted and replaced, and the missing rows "
                    "are written once there is room.", self._path, error,
                )  # fmt: skip

    @property
    def rows(self) -> list[FailureRow]:
        """Rows of this process, the oldest first."""
        with self._lock:
            return list(self._rows)

    def __str__(self) -> str:
        rows = self.rows
        if not rows:
            return "none lost"
        text = f"{len(rows)} lost, {sum(row.rows_lost for row in rows)} rows with them"
        took_ms = [row.replaced_ms for row in rows if row.replaced_ms is not None]
        if took_ms:
            p50, p95 = np.percentile(took_ms, (50, 95))
            text += f"; {len(took_ms)} replaced in {p50:.0f} ms (p50), {p95:.0f} ms (p95)"
        return text


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT, 0o600)


class WorkerTracebackError(Exception):
    """Traceback of an error in a worker's process, as the cause of the error; the first line is `in worker 'NAME':`."""


def place_raised(error: BaseException) -> str:
    """Return the line that raised an error, as "FILE, line N, in FUNCTION": the last one of the user's own code.

    Where no line of the user's is in the traceback, it is the last line of all; "" for an error without a traceback.
    The tracebacks of its causes, and of a worker in another process, are searched too.
    """
    frames = list(_frames(error))
    own = [frame for frame in frames if not frame[0].startswith(_OURS) and "site-packages" not in frame[0]]
    for file, line, function in reversed(own or frames):
        return f"{file}, line {line}, in {function}"
    return ""


def worker_of(error: BaseException) -> str | None:
    """Return "in worker 'NAME'" of an error that a worker in another process raised, None of any other."""
    found = _sent(error)
    return None if found is None else str(found).partition(":\n")[0]


def _frames(error: BaseException) -> Iterator[tuple[str, str, str]]:
    sent = _sent(error)
    if sent is not None:
        yield from _FRAME.findall(str(sent))
        return
    if error.__cause__ is not None:
        yield from _frames(error.__cause__)
    for frame in traceback.extract_tb(error.__traceback__):
        yield frame.filename, str(frame.lineno), frame.name


def _sent(error: BaseException | None) -> WorkerTracebackError | None:
    while error is not None and not isinstance(error, WorkerTracebackError):
        error = error.__cause__
    return error
