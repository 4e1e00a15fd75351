"""Progress of a run, its speed and the time left, shown as a live panel on a terminal, else as lines."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

import numpy as np
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.logging import RichHandler
from rich.markup import escape
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ding_like.data.team import RETURN_OF
from ding_like.errors import escape_controls
from ding_like.report.details import Details
from ding_like.report.scores import bootstrap_interval, by_agent, clock, interval, measure
from ding_like.report.scores import clock as clock_text
from ding_like.types import Config
from ding_like.utils.log import PACKAGE_LOGGER, REPEATS

# From here on a limit is none: DI-engine's defaults are 1e10.
_NO_LIMIT = 1e9
# Speeds are those of this last stretch of the run.
_WINDOW_S = 10.0
# What the policies' names are shown as; a name that is not here is shown as it is.
_SHORT_NAMES = {"total_loss": "loss", "q_value": "q", "cur_lr": "lr"}
# What is not useful at a glance.
_NOT_SHOWN = ("train_time", "target_q_value")
_MAX_SHOWN = 4

# (label of the row, its (name, value) pairs).
Row = tuple[str, list[tuple[str, str]]]


@dataclass(frozen=True)
class Limits:
    """Limits of a run; 1e9 and more means no limit."""

    max_env_step: float = math.inf
    max_train_iter: float = math.inf
    stop_value: float | None = None
    max_duration_s: float = math.inf  # of training; a run that has such a limit evaluates at its end alone

    @property
    def stop(self) -> float | None:
        """Evaluation that ends the run, None if there is none to reach."""
        return None if self.stop_value is None or self.stop_value >= _NO_LIMIT else self.stop_value

    def describe(self) -> str:
        """Return what ends the run in words."""
        is_timed = self.max_duration_s < math.inf
        rules = [f"{self.max_duration_s:g} s of training"] if is_timed else []
        rules += [] if self.stop is None or is_timed else [f"eval >= {measure(self.stop)}"]
        rules += [f"{limit:,.0f} {unit}" for limit, unit in self._budgets() if limit < _NO_LIMIT]
        return " or ".join(rules) or "interrupted"

    def describe_end(self, *, stop: bool, env_step: int, train_iter: int) -> str:
        """Return why a run has ended; `stop` is whether an evaluation reached the stop value."""
        if stop and self.stop is not None:
            return f"solved: an evaluation reached {measure(self.stop)}"
        counts = zip(self._budgets(), (env_step, train_iter), strict=True)
        spent = next((f"{limit:,.0f} {unit}" for (limit, unit), done in counts if done >= limit), "")
        return f"at its limit of {spent or f'{self.max_duration_s:g} s of training'}"

    def nearest(self, env_step: int, train_iter: int) -> tuple[float, int, float, str] | None:
        """Return (fraction done, done, limit, unit) of the budget that is used up first, None without a budget."""
        counts = zip(self._budgets(), (env_step, train_iter), strict=True)
        used = [(min(done / max(limit, 1), 1.0), done, limit, unit) for (limit, unit), done in counts]
        return max((budget for budget in used if budget[2] < _NO_LIMIT), default=None)

    def _budgets(self) -> list[tuple[float, str]]:
        return [(self.max_env_step, "env steps"), (self.max_train_iter, "updates")]


@dataclass(frozen=True)
class Progress:
    """Report on how far a run is; NaN and nothing where there is nothing yet."""

    env_step: int
    train_iter: int
    duration_s: float  # of the run so far, stretches before a resume included
    eval_duration_s: float = 0.0  # of which evaluations
    mean_return: float = math.nan  # of the last training episodes, with exploration
    mean_length: float = math.nan
    eval_returns: Sequence[float] = ()  # of the last evaluation
    best_eval: float = math.nan
    eval_metrics: Mapping[str, float] = field(default_factory=dict)  # of the env, in the last evaluation
    setting: Config = field(default_factory=dict)  # what the commander sets; numbers are shown
    learn: Mapping[str, float] = field(default_factory=dict)  # averages of what the policy reports
    workers: Mapping[str, str] = field(default_factory=dict)  # of a run of several processes: their status


class Speed:
    """Speeds and the time that is left, by progress reports."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._first: Progress | None = None
        self._recent: deque[Progress] = deque()

    def add(self, progress: Progress) -> None:
        """Add the newest report."""
        self._first = self._first or progress
        self._recent.append(progress)
        while len(self._recent) > 2 and progress.duration_s - self._recent[1].duration_s >= _WINDOW_S:
            self._recent.popleft()

    @property
    def speeds(self) -> tuple[float, float]:
        """Env steps and updates per second over the last ten seconds, NaN before there are two reports."""
        if len(self._recent) < 2:
            return math.nan, math.nan
        old, new = self._recent[0], self._recent[-1]
        seconds = max(new.duration_s - old.duration_s, 1e-9)
        return (new.env_step - old.env_step) / seconds, (new.train_iter - old.train_iter) / seconds

    @property
    def eta_s(self) -> float:
        """Seconds that are left at the average speed since this process began; NaN if it is not known."""
        if self._first is None or len(self._recent) < 2:
            return math.nan
        now = self._recent[-1]
        start, done = (self._limits.nearest(report.env_step, report.train_iter) for report in (self._first, now))
        if start is None or done is None or done[0] <= start[0]:
            return math.nan
        return (now.duration_s - self._first.duration_s) * (1 - done[0]) / (done[0] - start[0])

    @property
    def eta_text(self) -> str:
        """Time left as h:mm:ss, "?" while it is not known."""
        return "?" if math.isnan(self.eta_s) else clock(self.eta_s)


def describe_rows(progress: Progress, speed: Speed) -> list[Row]:
    """Return the rows of names and values below the bar."""
    rows = [
        ("rollout", _rollout(progress)),
        ("eval", _evaluation(progress)),
        ("learn", _learning(progress.learn)),
        ("speed", _speed(progress, speed)),
        ("workers", list(progress.workers.items())),
    ]
    return [(label, pairs) for label, pairs in rows if pairs]


def describe_line(progress: Progress, speed: Speed, limits: Limits) -> str:
    """Return the most important numbers in one line."""
    budget = limits.nearest(progress.env_step, progress.train_iter)
    done = "" if budget is None else f" ({budget[0]:.0%}, {speed.eta_text} left)"
    returns, has_collected = progress.eval_returns, progress.env_step > 0 or not progress.train_iter
    collected = [("env step", f"{progress.env_step:,}{done}"), ("iter", f"{progress.train_iter:,}")]
    pairs = [
        *(collected if has_collected else [("iter", f"{progress.train_iter:,}{done}")]),
        *(pair for pair in _rollout(progress) if has_collected and pair[0] != "length"),
        *([("eval", _mean_text(tuple(returns)))] if returns else []),
        *_metrics(progress),
        *_learning(progress.learn)[:1],
        *(_speed(progress, speed)[:1] if has_collected else _speed(progress, speed)[1:2]),
        ("eval time", f"{_eval_share(progress):.0%}"),
    ]
    return "  ".join(f"{name} {value}".strip() for name, value in pairs)


@lru_cache(maxsize=1)  # a panel is drawn more often than there are evaluations
def _mean_text(returns: tuple[float, ...]) -> str:
    return f"{measure(sum(returns) / len(returns))} {interval(*bootstrap_interval(returns))}"


def _rollout(progress: Progress) -> list[tuple[str, str]]:
    pairs = [("return", measure(progress.mean_return))]
    if not math.isnan(progress.mean_length):
        pairs.append(("length", measure(progress.mean_length)))
    numbers = {name: value for name, value in progress.setting.items() if isinstance(value, (float, np.floating))}
    return pairs + [(name, f"{value:.3g}") for name, value in numbers.items()]


def _evaluation(progress: Progress) -> list[tuple[str, str]]:
    returns = progress.eval_returns
    if not returns:
        return []
    pairs = [("mean", _mean_text(tuple(returns))), ("95% CI of", f"{len(returns)} episodes")]
    pairs += [] if math.isnan(progress.best_eval) else [("best", measure(progress.best_eval))]
    return pairs + _metrics(progress)


def _metrics(progress: Progress) -> list[tuple[str, str]]:
    agents = by_agent(progress.eval_metrics)
    others = [(name, value) for name, value in progress.eval_metrics.items() if not name.startswith(RETURN_OF)]
    pairs = [(name, f"{value:.3g}") for name, value in others[:_MAX_SHOWN]]
    return [("by agent:", agents), *pairs] if agents else pairs


def _learning(values: Mapping[str, float]) -> list[tuple[str, str]]:
    shown = [(_SHORT_NAMES.get(name, name), value) for name, value in values.items() if name not in _NOT_SHOWN]
    shown.sort(key=lambda pair: pair[0] != "loss")
    return [(name, f"{value:.3g}") for name, value in shown[:_MAX_SHOWN]]


def _speed(progress: Progress, speed: Speed) -> list[tuple[str, str]]:
    steps, updates = speed.speeds
    if math.isnan(steps):
        return []
    return [
        ("", f"{steps:,.0f} env steps/s"),
        ("", f"{updates:,.0f} updates/s"),
        ("evaluation", f"{_eval_share(progress):.0%} of the time"),
    ]


def _eval_share(progress: Progress) -> float:
    return progress.eval_duration_s / max(progress.duration_s, 1e-9)


logger = logging.getLogger(__name__)
_SILENT = logging.Logger(f"{__name__}.silent", logging.CRITICAL)

_PANEL_EVERY_S = 0.4
_LINE_EVERY_S = 10.0
# A report that took t seconds is followed by none for this many times t.
_REST = 100.0
_LEAVE_S = 5.0  # for a drawing that hangs, as on a stopped terminal: the run does not wait for it
_WIDTHS = (20, 100)  # of the panel, the least and the most
# Columns left free on the right: a terminal writes ^C behind the panel, which must not wrap and move it.
_ROOM = 3


class Watcher(Protocol):
    """Observer of the runs of this process beside the console; the thread of the run calls it."""

    every_s: float  # between two reports of progress

    def begin(self, run: RunConsole) -> None:
        """Take the news that a run begins, whose limits, phase and details can be read from now on."""

    def take_progress(self, progress: Progress) -> None:
        """Take a report of progress."""

    def take_evaluation(self, returns: Sequence[float], *, env_step: int, train_iter: int) -> None:
        """Take the returns of an evaluation's episodes."""

    def take_line(self, line: str) -> None:
        """Take a line that is shown and not logged."""

    def end(self, error: BaseException | None) -> None:
        """Take the news that the run has ended, by an error or without."""


WATCHERS: list[Watcher] = []  # of every run that begins from now on in this process


class RunConsole:
    """Console that shows a run from its opening lines to its summary; used with `with`, it gives the terminal back.

    On a terminal a panel is kept up to date below the log; elsewhere a line is logged every ten seconds. It takes at
    most a hundredth of the run's time, in the thread that calls it; only in a `phase` another thread shows the time.
    With `is_shown=False` it shows nothing: another process shows the run.
    """

    def __init__(
        self,
        title: str,
        limits: Limits,
        *,
        opening: Sequence[str] = (),
        is_shown: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = logger if is_shown else _SILENT
        self.title, self.limits, self.speed = title, limits, Speed(limits)
        self._opening = opening
        self._clock = clock
        # For watchers, by the run once it knows them.
        self.details: Callable[[], Details] = Details  # may be called by any thread
        self.resume_command = ""
        self.is_ending = False  # workers end as they should
        self.outcome = ""  # why the run has ended
        self.saved_at = ""  # where the newest point to resume from was saved
        self.save_asked: threading.Event | None = None  # set to have a point saved; None: it cannot be asked for
        self.phases: list[str] = []  # what is done just now beside the loop, the innermost last
        self._watchers = tuple(WATCHERS) if is_shown else ()
        console = log_terminal(self._log)
        self._panel = None if console is None else _RunPanel(console, title, limits, self.speed, self.phases)
        self._next_s = clock() + self._every_s
        self._watched_s = clock() + self._watch_every_s

    @property
    def _every_s(self) -> float:
        if self._log is _SILENT:
            return math.inf
        return _LINE_EVERY_S if self._panel is None else _PANEL_EVERY_S

    @property
    def _watch_every_s(self) -> float:
        return min((each.every_s for each in self._watchers), default=math.inf)

    def __enter__(self) -> RunConsole:
        if self._log is not _SILENT:
            REPEATS.begin()
        for watcher in self._watchers:
            watcher.begin(self)
        self.print(self._opening)
        if self._panel is not None:
            self._panel.open()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close_summary([])
        for watcher in self._watchers:
            watcher.end(error)

    def print(self, lines: Sequence[str]) -> None:
        """Show lines, such as the opening lines of a run whose parts had to be built first."""
        for line in lines:
            if self._panel is None:
                self._log.info("%s", line)
            else:
                self._panel.print(line)
                for watcher in self._watchers:
                    watcher.take_line(line)

    @contextmanager
    def phase(self, what: str) -> Iterator[None]:
        """Show, while the block runs, what is done and for how long already, such as building envs."""
        if self._log is _SILENT:
            yield
            return
        started_s = time.monotonic()

        def log() -> None:
            self._log.info("%s: %s so far", what, clock_text(time.monotonic() - started_s))

        panel = self._panel
        self.phases.append(what)
        if panel is not None:
            panel.begin_phase()
        try:
            with _ticking(log if panel is None else panel.draw, self._every_s):
                yield
        finally:
            self.phases.remove(what)

    @property
    def is_due(self) -> bool:
        """Whether the next `show` is due; asking costs next to nothing, making a Progress does not."""
        return self._clock() >= min(self._next_s, self._watched_s)

    def start(self, progress: Progress) -> None:
        """Measure speed and time left from here: call it once, before the loop or after a resume."""
        self._watch(progress)
        if self._panel is not None:
            self._panel.begin(progress)

    def _watch(self, progress: Progress) -> None:
        self.speed.add(progress)
        for watcher in self._watchers:
            watcher.take_progress(progress)
        self._watched_s = self._clock() + self._watch_every_s

    def show(self, progress: Progress) -> None:
        """Show the state, which is due, where it is due: watchers may have it more often than the console."""
        if self._clock() >= self._next_s:
            self.update(progress)
        else:
            self._watch(progress)

    def note_evaluation(self, returns: Sequence[float], *, env_step: int, train_iter: int) -> None:
        """Hand the returns of an evaluation's episodes to the watchers."""
        for watcher in self._watchers:
            watcher.take_evaluation(returns, env_step=env_step, train_iter=train_iter)

    def take_save_request(self) -> bool:
        """Return whether a watcher asked for a point to resume from, and forget that it did."""
        if self.save_asked is None or not self.save_asked.is_set():
            return False
        self.save_asked.clear()
        return True

    def update(self, progress: Progress) -> None:
        """Show the newest state."""
        started_s = self._clock()
        self._watch(progress)
        if self._panel is None:
            self._log.info("%s", describe_line(progress, self.speed, self.limits))
        else:
            self._panel.show(progress)
        now_s = self._clock()
        self._next_s = now_s + max(self._every_s, _REST * (now_s - started_s))

    def event(self, text: str) -> None:
        """Log an event; it is shown above the panel."""
        self._log.info("%s", text)

    def close_summary(self, lines: Sequence[str]) -> None:
        """Close the panel and show the run's last lines below it, after how often warnings were repeated."""
        if self._panel is not None:
            self._panel.close()
        self.print([*(REPEATS.take_summary() if self._log is not _SILENT else []), *lines])


class LivePanel:
    """Panel at the bottom of a terminal, which other output scrolls above; a terminal that goes away is left alone."""

    def __init__(self, console: Console, title: str, *, widths: tuple[int, int]) -> None:
        self.console = console
        self._title = title
        self._widths = widths  # the least and the most
        self._is_lost = False
        self._live = Live(console=console, auto_refresh=False, transient=False)

    def open(self) -> None:
        self._live.start()

    def draw(self, content: RenderableType, subtitle: str, *, refresh: bool = True) -> None:
        """Draw content in a frame as wide as the console has room; without `refresh` it is drawn by `close`."""
        least, most = self._widths
        panel = Panel(
            content,
            title=f"[bold]{escape(escape_controls(self._title))}",
            title_align="left",
            subtitle=subtitle,
            subtitle_align="right",
            box=box.ROUNDED,
            border_style="cyan",
            width=max(min(self.console.width - _ROOM, most), least),
        )
        if not self._is_lost:
            try:
                self._live.update(panel, refresh=refresh)
            except OSError:
                self._is_lost = True

    def close(self, *, leaves_nothing: bool = False) -> None:
        """Give the terminal back; may be called again."""
        self._live.transient = leaves_nothing
        with suppress(OSError):  # a terminal that has gone away cannot be tidied up
            self._live.stop()


class _RunPanel:
    """Panel of a run: a bar, rows of numbers, and what is done just now."""

    def __init__(self, console: Console, title: str, limits: Limits, speed: Speed, phases: Sequence[str]) -> None:
        self._phases = phases  # what is done just now beside the loop, the innermost last
        self._panel = LivePanel(console, title, widths=_WIDTHS)
        self._limits = limits
        self._speed = speed
        self._progress: Progress | None = None  # what was shown last
        self._since_s = time.monotonic()  # when that was shown, or the panel was opened
        self._startup_s = 0.0  # from opening the panel until the run began

    def print(self, line: str) -> None:
        text = Text(escape_controls(line))
        text.highlight_regex(r"^\S+", "bold")
        self._panel.console.print(text, soft_wrap=True)

    def open(self) -> None:
        self._since_s = time.monotonic()
        self._panel.open()

    def begin(self, progress: Progress) -> None:
        self._startup_s = max(time.monotonic() - self._since_s - progress.duration_s, 0.0)
        self.show(progress)

    def show(self, progress: Progress) -> None:
        self._progress, self._since_s = progress, time.monotonic()
        self.draw()

    def begin_phase(self) -> None:
        if self._progress is None:
            self.draw()

    def close(self) -> None:
        if self._progress is not None:
            self.draw(is_last=True)
        self._panel.close(leaves_nothing=self._progress is None)  # a panel that has shown nothing leaves nothing

    def draw(self, *, is_last: bool = False) -> None:
        phase = "" if is_last or not self._phases else self._phases[-1]
        duration_s = time.monotonic() - self._since_s
        content: RenderableType = Text(phase)
        if self._progress is not None:
            duration_s += self._startup_s + self._progress.duration_s
            content = Group(self._bar(self._progress), self._rows(self._progress))
        subtitle = f"{phase}   " if phase and self._progress is not None else ""
        self._panel.draw(content, subtitle + clock_text(duration_s), refresh=not is_last)

    def _rows(self, progress: Progress) -> Table:
        rows = Table.grid(padding=(0, 2, 0, 0))
        rows.add_column(style="bold", no_wrap=True, min_width=7)
        rows.add_column(overflow="ellipsis", no_wrap=True)
        for label, pairs in describe_rows(progress, self._speed):
            parts = ((f"{name} " if name else "", "dim") for name, _ in pairs)
            texts = [Text.assemble(part, value) for part, (_, value) in zip(parts, pairs, strict=True)]
            rows.add_row(label, Text("   ").join(texts))
        return rows

    def _bar(self, progress: Progress) -> Table | Text:
        """Return a bar up to the budget that runs out first; without a budget there is nothing to measure against."""
        budget = self._limits.nearest(progress.env_step, progress.train_iter)
        if budget is None:
            stop = "" if self._limits.stop is None else f"   until {self._limits.describe()}"
            return Text(f"{progress.env_step:,} env steps   {progress.train_iter:,} updates{stop}")
        fraction, done, limit, unit = budget
        line = Table.grid(expand=True, padding=(0, 2, 0, 0))
        line.add_column(ratio=1)
        line.add_column(no_wrap=True)
        bar = ProgressBar(total=1.0, completed=fraction, complete_style="cyan", finished_style="green")
        line.add_row(bar, f"{done:,}/{limit:,.0f} {unit}   ETA {self._speed.eta_text}")
        return line


def log_terminal(of: logging.Logger) -> Console | None:
    """Return the terminal that the command line logs to through rich, None where `of` logs nothing or elsewhere.

    `utils.log.setup_console` looks for a terminal and NO_COLOR. A panel shares its console, so that log lines
    scroll above the panel.
    """
    consoles = [handler.console for handler in PACKAGE_LOGGER.handlers if isinstance(handler, RichHandler)]
    return consoles[0] if consoles and of.isEnabledFor(logging.INFO) else None


@contextmanager
def _ticking(tick: Callable[[], None], every_s: float) -> Iterator[None]:
    """Call `tick` now and then, in a thread of its own, until the block ends."""
    ended = threading.Event()

    def run() -> None:
        wait_s = every_s
        while not ended.wait(wait_s):
            started_s = time.monotonic()
            tick()
            wait_s = max(every_s, _REST * (time.monotonic() - started_s))

    thread = threading.Thread(target=run, name="ticker", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_LEAVE_S)
