"""Policy for failed workers, budget of restarts, and log of failures."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np

from ding_like.config.system import FROM_0, SECONDS
from ding_like.errors import ConfigError

FAILURES_FILE = "failures.jsonl"
_WINDOW_S = 600.0  # of a restart budget

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FailurePolicy:
    """Policy for workers that die or hang. Raises ConfigError, with every fault, for impossible values.

    At most `restarts_per_10min` failed workers are restarted in ten minutes; at the next failure a run stops, or
    continues with the remaining workers (`when_spent` "shrink"). A worker must be ready `start_timeout_s` after its
    start, and answer a call within `step_timeout_s`.
    """

    restarts_per_10min: Annotated[int, FROM_0] = 3
    start_timeout_s: Annotated[float, SECONDS] = 60.0
    step_timeout_s: Annotated[float, SECONDS] = 120.0
    when_spent: Literal["stop", "shrink"] = "stop"

    def __post_init__(self) -> None:
        restarts, faults = self.restarts_per_10min, []
        if not isinstance(restarts, int) or isinstance(restarts, bool) or restarts < 0:
            faults.append(f"restarts_per_10min is {restarts!r}; set a whole number, 0 to restart no worker.")
        for name in ("start_timeout_s", "step_timeout_s"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 < value < float("inf"):
                faults.append(f"{name} is {value!r}; set a number of seconds above 0.")
        if self.when_spent not in ("stop", "shrink"):
            faults.append(f"when_spent is {self.when_spent!r}; set one of 'stop', 'shrink'.")
        if faults:
            raise ConfigError("the failure policy of workers: " + " ".join(faults))


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
