"""Define how many lost workers a run puts up with, and keep a row of each one that was lost."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from ding_like.errors import ConfigError

FAILURES_FILE = "failures.jsonl"
WHEN_SPENT = ("stop", "shrink")
_WINDOW_S = 600.0  # that a budget of restarts is for

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FailurePolicy:
    """Say what is done about workers that die or hang. Raises ConfigError, with every fault, for what makes no sense.

    At most `restarts_per_10min` lost workers are replaced in ten minutes; with the next one a run stops, or goes on
    with the workers that are left (`when_spent` "shrink"). A worker is to be ready `start_timeout_s` after its start,
    and to answer a call after `step_timeout_s`.
    """

    restarts_per_10min: int = 3
    start_timeout_s: float = 60.0
    step_timeout_s: float = 120.0
    when_spent: str = "stop"

    def __post_init__(self) -> None:
        faults = []
        if not _is_number(self.restarts_per_10min) or self.restarts_per_10min < 0 or self.restarts_per_10min % 1:
            faults.append(
                f"restarts_per_10min is {self.restarts_per_10min!r}; set a whole number, 0 to replace no worker."
            )
        for name in ("start_timeout_s", "step_timeout_s"):
            value = getattr(self, name)
            if not _is_number(value) or not 0 < value < float("inf"):
                faults.append(f"{name} is {value!r}; set a number of seconds above 0.")
        if self.when_spent not in WHEN_SPENT:
            faults.append(f"when_spent is {self.when_spent!r}; set one of {', '.join(map(repr, WHEN_SPENT))}.")
        if faults:
            raise ConfigError("the failure policy of workers: " + " ".join(faults))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class RestartBudget:
    """Count what was replaced in the last ten minutes; whoever uses it sees to it that one thread does so at a time."""

    def __init__(self, restarts_per_10min: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._number = restarts_per_10min
        self._clock = clock
        self._spent_s: deque[float] = deque()

    def spend(self) -> bool:
        """Take one restart; False: there is none left."""
        now = self._clock()
        while self._spent_s and now - self._spent_s[0] >= _WINDOW_S:
            self._spent_s.popleft()
        if len(self._spent_s) >= self._number:
            return False
        self._spent_s.append(now)
        return True


@dataclass
class FailureRow:
    """Hold what is known of one worker that was lost."""

    worker: str
    kind: str  # "collector" say: its name without the number
    role: str  # what it did: "working", "standby" or "starting"
    how: str  # it is known to be lost
    detail: str  # what its host said
    rows_lost: int  # that it was to collect and never handed over
    last: str  # action of it, if that is known
    replaced_by: str | None  # None: by nobody (yet)
    replaced_ms: float | None  # from when the loss was known until another one took the place
    time: str  # of day, with the zone
    since_start_s: float


def describe_spent(row: FailureRow, policy: FailurePolicy, *, least: int) -> str:
    """Return why a run ends with the loss of this row, for which the budget was too small, and what to do about it."""
    ways = ["raise restarts_per_10min"]
    if policy.when_spent == "stop":
        ways.append("set when_spent='shrink' to go on with the workers that are left")
    else:
        ways[0] += f" (at least {least} must work)"
    return (
        f"{row.worker} ({row.role}) was lost: {row.how}{f' ({row.detail})' if row.detail else ''}. Its last action: "
        f"{row.last or 'not known'}. Workers of kind '{row.kind}' were replaced as often in the last 10 minutes as "
        f"failure.restarts_per_10min={policy.restarts_per_10min} allows. Find what ends them (an env that fails, too "
        f"little memory; {FAILURES_FILE} has a row for each), or {', or '.join(ways)}."
    )


class FailureLog:
    """Keep a row for each worker that was lost, and append it to a file; threads may share it.

    A file that cannot be written ends no run: that is said once, and what is missing is written with the next row. What
    an earlier stretch of the run has written stays.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        time_of_day: Callable[[], float] = time.time,
    ) -> None:
        self._path = None if path is None else Path(path)
        self._clock = clock
        self._time_of_day = time_of_day
        self._started_s = clock()
        self._lock = threading.Lock()
        self._rows: list[FailureRow] = []
        self._starts: list[int] = []  # byte of the file where each written row starts
        self._end: int | None = None  # byte after the last one; None: the file was not looked at
        self._is_told = False  # that the file cannot be written

    def note(
        self,
        worker: str,
        *,
        how: str,
        replaced_by: str | None = None,
        replaced_ms: float | None = None,
        rows_lost: int = 0,
        last: str = "",
        role: str = "working",
        detail: str = "",
    ) -> FailureRow:
        """Add a row, and return it for `amend`."""
        row = FailureRow(
            worker, worker.rstrip("0123456789"), role, how, detail, rows_lost, last, replaced_by, replaced_ms,
            time.strftime("%Y-%m-%d %H:%M:%S%z", time.localtime(self._time_of_day())),
            round(self._clock() - self._started_s, 3),
        )  # fmt: skip
        with self._lock:
            self._rows.append(row)
            self._write()
        return row

    def amend(self, row: FailureRow, **changes: str | float | None) -> None:
        """Change columns of a row of this log, as more of the loss is known; its line in the file changes with it."""
        unknown = set(changes) - {field.name for field in fields(FailureRow)}
        assert not unknown, unknown
        with self._lock:
            for name, value in changes.items():
                setattr(row, name, value)
            number = next(number for number, each in enumerate(self._rows) if each is row)
            if number < len(self._starts):
                self._end = self._starts[number]
                del self._starts[number:]
            self._write()

    def _write(self) -> None:
        """Write the rows from the first one on that the file does not have as it is now; the lock is held."""
        if self._path is None:
            return
        try:
            with open(self._path, "r+b", opener=_open_private) as file:
                if self._end is None:  # half a line is what a killed process leaves
                    self._end = file.read().rfind(b"\n") + 1
                starts, end = list(self._starts), file.seek(self._end)
                for row in self._rows[len(starts) :]:
                    starts.append(end)
                    end += file.write(json.dumps(asdict(row)).encode() + b"\n")
                file.truncate(end)
                file.flush()
            self._starts, self._end = starts, end
        except OSError as error:
            if not self._is_told:
                self._is_told = True
                _logger.warning(
                    "%s cannot be written (%s): lost workers are still counted and replaced. Rows that are missing are "
                    "written once there is room.", self._path, error,
                )  # fmt: skip

    @property
    def rows(self) -> list[FailureRow]:
        """Return the rows of this stretch of the run, the oldest first."""
        with self._lock:
            return list(self._rows)

    def replacement_ms(self, percentile: float) -> float:
        """Return a percentile (50, say) of the ms that replacements took; NaN if nothing was replaced."""
        known = [row.replaced_ms for row in self.rows if row.replaced_ms is not None]
        return float(np.percentile(known, percentile)) if known else float("nan")

    def summary(self) -> dict[str, float]:
        """Return how many were lost and replaced, what was lost with them, and p50 and p95 of replacement in ms.

        The percentiles are left out where nothing was replaced.
        """
        rows = self.rows
        found = {
            "lost": len(rows),
            "replaced": sum(row.replaced_ms is not None for row in rows),
            "rows_lost": sum(row.rows_lost for row in rows),
        }
        if not found["replaced"]:
            return {**found}
        return {**found, "replaced_p50_ms": self.replacement_ms(50), "replaced_p95_ms": self.replacement_ms(95)}

    def __str__(self) -> str:
        found = self.summary()
        if not found["lost"]:
            return "none lost"
        text = f"{found['lost']} lost, {found['rows_lost']} rows with them"
        if found["replaced"]:
            text += f"; {found['replaced']} replaced in {found['replaced_p50_ms']:.0f} ms (p50), "
            text += f"{found['replaced_p95_ms']:.0f} ms (p95)"
        return text


def _open_private(path: str, flags: int) -> int:
    # What went wrong in a run is nobody else's to read.
    return os.open(path, flags | os.O_CREAT, 0o600)
