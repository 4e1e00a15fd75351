"""Console of a run: a live panel on a terminal, a line of the log now and then elsewhere."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.logging import RichHandler
from rich.markup import escape
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ding_like.errors import escape_controls
from ding_like.report.progress import Limits, Progress, Speed, describe_line, describe_rows
from ding_like.report.scores import clock as clock_text
from ding_like.utils.log import PACKAGE_LOGGER, REPEATS

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
        self._limits = limits
        self._opening = opening
        self._clock = clock
        self._speed = Speed(limits)
        console = log_terminal(self._log)
        self._panel = None if console is None else _RunPanel(console, title, limits, self._speed)
        self._next_s = clock() + self._every_s

    @property
    def _every_s(self) -> float:
        if self._log is _SILENT:
            return math.inf
        return _LINE_EVERY_S if self._panel is None else _PANEL_EVERY_S

    def __enter__(self) -> RunConsole:
        if self._log is not _SILENT:
            REPEATS.begin()
        self.print(self._opening)
        if self._panel is not None:
            self._panel.open()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close_summary([])

    def print(self, lines: Sequence[str]) -> None:
        """Show lines, such as the opening lines of a run whose parts had to be built first."""
        for line in lines:
            if self._panel is None:
                self._log.info("%s", line)
            else:
                self._panel.print(line)

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
        if panel is not None:
            panel.begin_phase(what)
        try:
            with _ticking(log if panel is None else panel.draw, self._every_s):
                yield
        finally:
            if panel is not None:
                panel.phases.remove(what)

    @property
    def is_due(self) -> bool:
        """Whether the next `update` is due; asking costs next to nothing, making a Progress does not."""
        return self._clock() >= self._next_s

    def start(self, progress: Progress) -> None:
        """Measure speed and time left from here: call it once, before the loop or after a resume."""
        self._speed.add(progress)
        if self._panel is not None:
            self._panel.begin(progress)

    def update(self, progress: Progress) -> None:
        """Show the newest state."""
        started_s = self._clock()
        self._speed.add(progress)
        if self._panel is None:
            self._log.info("%s", describe_line(progress, self._speed, self._limits))
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

    def __init__(self, console: Console, title: str, limits: Limits, speed: Speed) -> None:
        self.phases: list[str] = []  # what is done just now beside the loop, the innermost last
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

    def begin_phase(self, what: str) -> None:
        self.phases.append(what)
        if self._progress is None:
            self.draw()

    def close(self) -> None:
        if self._progress is not None:
            self.draw(is_last=True)
        self._panel.close(leaves_nothing=self._progress is None)  # a panel that has shown nothing leaves nothing

    def draw(self, *, is_last: bool = False) -> None:
        phase = "" if is_last or not self.phases else self.phases[-1]
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
