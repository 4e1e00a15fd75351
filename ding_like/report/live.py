"""State of a run while it goes on, for its page: progress, curves, processes, failures and the last log lines."""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from ding_like.errors import DingError
from ding_like.report.details import BufferUse, Details, Failure
from ding_like.report.process_table import ProcessRow, ProcessTable
from ding_like.report.run_console import Progress, RunConsole
from ding_like.report.scores import bootstrap_interval
from ding_like.types import Json
from ding_like.utils.log import PACKAGE_LOGGER, REPEATS

RunStatus = Literal["starting", "running", "stopping", "ended", "interrupted", "failed"]
OVER: tuple[RunStatus, ...] = ("ended", "interrupted", "failed")

EVERY_S = 1.0  # between two reports of progress
_LOOK_S = 0.9  # between two looks at the processes: a page that asks once a second gets new ones each time
_LINES = 200  # of the log
_LONGEST_LINE = 2_000  # characters
_POINTS = 1_000  # of a curve, at most
_FAILURES = 20


class ThinnedSeries:
    """Rows of numbers, of which every second one is left out whenever there are more than `most`.

    From then on only every second new row is kept, so that the rows are spread evenly however long they are added.
    """

    def __init__(self, most: int = _POINTS) -> None:
        self._most = most
        self._num_added = 0
        self.stride = 1  # of the added rows, each so many-th is there
        self.rows: list[tuple[float | None, ...]] = []

    def add(self, *numbers: float | None) -> None:
        """Add a row."""
        if self._num_added % self.stride == 0:
            self.rows.append(numbers)
        self._num_added += 1
        if len(self.rows) > self._most:
            self.rows = self.rows[::2]
            self.stride *= 2


@dataclass(frozen=True)
class SeriesPart:
    """Rows of a series from a place on: of a reader that has those before it."""

    start: int
    rows: Sequence[tuple[float | None, ...]]


@dataclass(frozen=True)
class RunState:
    """State of a run at one time. Unknown numbers are None; `cursor` gets a reader what is new since then."""

    status: RunStatus
    is_last: bool  # nothing follows: this process is about to end
    why: str  # it has ended
    phase: str  # what is done beside the loop
    experiment: str
    host: str
    pid: int
    until: str  # what ends it
    resume_command: str
    saved_at: str
    can_save: bool
    started_s: float  # seconds since 1970
    now_s: float
    duration_s: float
    progress_age_s: float | None  # since the last report of progress
    env_step: int
    train_iter: int
    fraction: float | None  # of the budget that is used up first
    eta_s: float | None
    env_steps_per_s: float | None
    updates_per_s: float | None
    mean_return: float | None
    mean_length: float | None
    eval_mean: float | None
    eval_interval: tuple[float, float] | None
    eval_episodes: int
    best_eval: float | None
    eval_share: float | None  # of the time
    learn: Mapping[str, float | None]
    setting: Mapping[str, float | None]
    workers: Mapping[str, str]
    policy_lag: float | None
    data_age_s: float | None
    buffer: BufferUse | None
    oldest_row_s: float | None  # about, from the env steps since
    lost_rows: Mapping[str, int]
    num_failures: int
    failures: Sequence[Failure]
    processes: Sequence[ProcessRow]
    evals: SeriesPart  # rows (env step, update, seconds, mean, low, high)
    rollouts: SeriesPart  # rows (env step, update, seconds, mean return of the last training episodes)
    log: Sequence[str]
    cursor: str

    def to_plain(self) -> dict[str, Json]:
        """Return the state as JSON has it, where a number that is not finite is null."""
        plain: dict[str, Json] = _plain(asdict(self))
        return plain


@dataclass
class _Look:
    """Processes and details of a run as they were last looked at."""

    at_s: float = -math.inf
    details: Details = field(default_factory=Details)
    rows: Sequence[ProcessRow] = ()


class LiveRun:
    """Watcher of the runs of this process, of which `state` returns that of the last one; any thread may call it.

    Nothing but the newest report and the curves is kept: details and processes are looked at when they are asked for,
    at most once a second.
    """

    every_s = EVERY_S

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._looking = threading.Lock()
        self._log = _LogTail()
        self._asked_s = -math.inf  # when the state was asked for last
        self._is_last = self._has_been_seen = False  # the state after which nothing follows
        self._run: RunConsole | None = None
        self._reset()

    def _reset(self) -> None:
        self._progress: Progress | None = None
        self._progress_s, self._begun_s, self._ended_s = self._clock(), self._clock(), math.nan
        self._started_s = time.time()
        self._status: RunStatus = "starting"
        self._why = ""
        self._evals, self._rollouts = ThinnedSeries(), ThinnedSeries()
        self._last_eval: tuple[float, float, float, int] | None = None  # mean, low, high, episodes
        self._table, self._look = ProcessTable(), _Look()

    def open(self) -> None:
        """Begin to keep the last lines of the log."""
        PACKAGE_LOGGER.addHandler(self._log)

    def close(self) -> None:
        """Keep lines no more; may be called again."""
        PACKAGE_LOGGER.removeHandler(self._log)

    # --- from the thread of the run

    def begin(self, run: RunConsole) -> None:
        """Watch a run that begins."""
        with self._changed:
            self._reset()
            self._run = run

    def take_progress(self, progress: Progress) -> None:
        """Take a report of progress."""
        with self._changed:
            self._progress, self._progress_s = progress, self._clock()
            self._status = "running" if self._status == "starting" else self._status
            if math.isfinite(progress.mean_return):
                place = progress.env_step, progress.train_iter, round(progress.duration_s, 2)
                self._rollouts.add(*place, progress.mean_return)

    def take_evaluation(self, returns: Sequence[float], *, env_step: int, train_iter: int) -> None:
        """Take the returns of an evaluation's episodes."""
        mean, (low, high) = sum(returns) / len(returns), bootstrap_interval(returns)
        with self._changed:
            self._last_eval = mean, low, high, len(returns)
            duration_s = 0.0 if self._progress is None else self._progress.duration_s
            passed_s = duration_s + self._clock() - self._progress_s
            self._evals.add(env_step, train_iter, round(passed_s, 2), *map(_finite, (mean, low, high)))

    def take_line(self, line: str) -> None:
        """Take a line that is shown and not logged."""
        self._log.add(line)

    def end(self, error: BaseException | None) -> None:
        """Take the news that the run has ended."""
        run = self._run
        with self._changed:
            if self._status in OVER:
                return
            self._ended_s = self._clock()
            self._status, self._why = "ended", "" if run is None else run.outcome
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                self._status, self._why = "interrupted", self._why or "interrupted before it had begun"
            elif error is not None:
                self._status, self._why = "failed", f"{type(error).__name__}: {error}"
            self._changed.notify_all()

    # --- from any thread

    @property
    def is_over(self) -> bool:
        """Whether the run has ended, or none has begun."""
        return self._status in OVER or self._run is None

    def give_last_state(self, timeout_s: float) -> bool:
        """Wait until a reader that has asked for the state lately has the last one; return whether one has."""
        with self._changed:
            self._is_last = True
            if self._clock() - self._asked_s > 5 * EVERY_S:
                return False
            return self._changed.wait_for(lambda: self._has_been_seen, timeout_s)

    def stop(self) -> str:
        """Stop the run as Ctrl-C does; return "" or why it cannot be."""
        with self._changed:
            if self.is_over:
                return "no run goes on"
            if self._status == "stopping":
                return "the run is stopping already; a second Ctrl-C would end it without saving"
            self._status = "stopping"
        # A run in the background of a script ignores SIGINT.
        number = signal.SIGTERM if signal.getsignal(signal.SIGINT) is signal.SIG_IGN else signal.SIGINT
        main = threading.main_thread().ident
        assert main is not None, "the main thread was started"
        signal.pthread_kill(main, number)
        return ""

    def save(self) -> str:
        """Ask for a point to resume from, after the iteration under way; return "" or why there will be none."""
        asked = None if self._run is None or self.is_over else self._run.save_asked
        if asked is None:
            return (
                "this run saves no points on request: one with a coordinator saves what it knows with each message, "
                "and others save none before they have begun"
            )
        asked.set()
        return ""

    def state(self, cursor: str = "") -> RunState:
        """Return the state; with the `cursor` of an earlier one, without the rows and lines that it had."""
        self._look_again()
        with self._changed:
            self._asked_s = self._clock()
            state = self._state(*_read_cursor(cursor))
            self._has_been_seen = self._is_last
            self._changed.notify_all()
        return state

    def _look_again(self) -> None:
        """Look at details and processes, unless that was done just now; of a run that is over at processes alone."""
        with self._looking:
            run, table, now_s, is_over = self._run, self._table, self._clock(), self._status in OVER
            if run is None or (now_s - self._look.at_s < _LOOK_S and not is_over):
                return
            details = self._look.details
            if is_over:
                rows = table.scan_again(self._look.rows)
            else:
                with suppress(DingError):  # a part that has failed, which ends the run: the last details stay
                    details = run.details()
                rows = table.scan(details.processes, is_ending=run.is_ending)
            look = _Look(now_s, details, rows)
            with self._changed:
                if table is self._table:  # no other run has begun meanwhile
                    self._look = look

    def _state(self, evals: tuple[int, int], rollouts: tuple[int, int], lines: int) -> RunState:
        run, progress, look = self._run, self._progress, self._look
        is_over, now_s = self._status in OVER, self._clock()
        processes = look.rows
        if self._is_last:
            processes = [replace(row, state="ended") if row.pid == os.getpid() else row for row in processes]
        num_lines, log = self._log.since(lines)
        series = _part(self._evals, evals), _part(self._rollouts, rollouts)
        places = [f"{each.stride}:{len(each.rows)}" for each in (self._evals, self._rollouts)]
        return RunState(
            status=self._status, is_last=self._is_last, why=self._why,
            phase="" if run is None or is_over else (run.phases or [""])[-1],
            experiment="" if run is None else run.title, host=socket.gethostname(), pid=os.getpid(),
            until="" if run is None else run.limits.describe(),
            resume_command="" if run is None else run.resume_command, saved_at="" if run is None else run.saved_at,
            can_save=run is not None and run.save_asked is not None and not is_over,
            started_s=self._started_s, now_s=time.time(),
            progress_age_s=None if progress is None or is_over else now_s - self._progress_s,
            eval_mean=_finite(self._last_eval[0]) if self._last_eval else None,
            eval_interval=self._last_eval[1:3] if self._last_eval else None,
            eval_episodes=self._last_eval[3] if self._last_eval else 0,
            policy_lag=look.details.policy_lag, data_age_s=look.details.data_age_s, buffer=look.details.buffer,
            oldest_row_s=self._oldest_row_s(look.details.buffer), lost_rows=dict(look.details.lost_rows),
            num_failures=len(look.details.failures), failures=list(look.details.failures)[-_FAILURES:],
            processes=processes, evals=series[0], rollouts=series[1], log=log,
            cursor="-".join([*places, str(num_lines)]), **self._numbers(),
        )  # fmt: skip

    def _numbers(self) -> dict[str, Any]:  # Any: fields of several types
        """Return the fields that come from the last report of progress."""
        run, progress = self._run, self._progress or Progress(0, 0, 0.0)
        now_s = self._ended_s if self._status in OVER else self._clock()
        since_s = now_s - (self._begun_s if self._progress is None else self._progress_s)
        steps, updates = (math.nan, math.nan) if run is None else run.speed.speeds
        budget = None if run is None else run.limits.nearest(progress.env_step, progress.train_iter)
        return {
            "duration_s": progress.duration_s + max(since_s, 0.0),
            "env_step": progress.env_step,
            "train_iter": progress.train_iter,
            "fraction": None if budget is None else budget[0],
            "eta_s": None if run is None or self._status in OVER else _finite(run.speed.eta_s),
            "env_steps_per_s": _finite(steps),
            "updates_per_s": _finite(updates),
            "mean_return": _finite(progress.mean_return),
            "mean_length": _finite(progress.mean_length),
            "best_eval": _finite(progress.best_eval),
            "eval_share": progress.eval_duration_s / progress.duration_s if progress.duration_s > 0 else None,
            "learn": _numbers_of(progress.learn),
            "setting": _numbers_of(progress.setting),
            "workers": dict(progress.workers),
        }

    def _oldest_row_s(self, buffer: BufferUse | None) -> float | None:
        """Return about how old the oldest row of a buffer is, if it has a row for each env step."""
        progress = self._progress
        if buffer is None or not buffer.rows or progress is None:
            return None
        since_step = progress.env_step - buffer.rows
        before = [row for row in self._rollouts.rows if row[0] is not None and row[0] <= since_step]
        if not before or before[-1][2] is None:
            return progress.duration_s
        return max(progress.duration_s - before[-1][2], 0.0)


class _LogTail(logging.Handler):
    """Handler that keeps the last lines of the log."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.addFilter(REPEATS)
        self._guard = threading.Lock()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S"))
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._num_lines = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record's lines."""
        try:
            self.add(self.format(record).replace(" INFO ", " ", 1))
        except Exception:  # as handlers of `logging` do: a message that cannot be formatted ends no run
            self.handleError(record)

    def add(self, text: str) -> None:
        """Keep a line."""
        with self._guard:
            for line in text.splitlines() or [""]:
                self._lines.append(line[:_LONGEST_LINE])
                self._num_lines += 1

    def since(self, known: int) -> tuple[int, list[str]]:
        """Return how many lines there were so far, and those behind the first `known`, as far as they are kept."""
        with self._guard:
            new = self._num_lines - known if 0 <= known <= self._num_lines else self._num_lines
            return self._num_lines, list(self._lines)[-new:] if new else []


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _plain(value: Json) -> Json:
    if isinstance(value, float):
        return _finite(value)
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def _numbers_of(values: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the numbers of a mapping by name."""
    found: dict[str, float | None] = {}
    for name, value in values.items():
        with suppress(TypeError, ValueError):
            found[name] = _finite(float(value))
    return found


def _part(series: ThinnedSeries, known: tuple[int, int]) -> SeriesPart:
    """Return the rows that a reader lacks which has so many (stride, rows); all where they were thinned out since."""
    stride, count = known
    start = count if stride == series.stride and 0 <= count <= len(series.rows) else 0
    return SeriesPart(start, series.rows[start:])


def _read_cursor(cursor: str) -> tuple[tuple[int, int], tuple[int, int], int]:
    """Return what a cursor says that its reader has; nothing for another text."""
    try:
        evals, rollouts, lines = cursor.split("-")
        pairs = [tuple(map(int, each.split(":"))) for each in (evals, rollouts)]
        return (pairs[0][0], pairs[0][1]), (pairs[1][0], pairs[1][1]), int(lines)
    except (ValueError, IndexError):
        return (0, 0), (0, 0), 0
