"""Show a run's progress: a live panel on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Protocol

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
from ding_like.report.progress import (
    EvalInterval,
    Limits,
    Progress,
    Speed,
    describe_line,
    describe_rows,
    eta_text,
)
from ding_like.report.text import clock
from ding_like.report.ticker import Ticker
from ding_like.utils.log import PACKAGE_LOGGER

logger = logging.getLogger(__name__)

_WIDTHS = (20, 100)  # of the panel, the least and the most
# Columns left free on the right: a terminal writes ^C behind the panel, which must not wrap and move it.
_ROOM = 3


class View(Protocol):
    """Show how a run goes."""

    every_s: float  # how often it wants news

    def open(self, lines: Sequence[str]) -> None:
        """Begin to show the run; `lines` are told first."""

    def begin(self, progress: Progress, speed: Speed) -> None:
        """Show where it begins."""

    def phase(self, what: str) -> AbstractContextManager[object]:
        """Show, while the block runs, that something is done which does not say how far it is."""

    def show(self, progress: Progress, speed: Speed) -> None:
        """Show how far it is."""

    def close(self) -> None:
        """Give the terminal back; may be called again."""

    def tell(self, lines: Sequence[str]) -> None:
        """Show the run's last lines, after `close`."""


def choose_view(title: str, limits: Limits) -> View:
    """Return a panel where the command line logs to a terminal through rich, lines of the log everywhere else.

    `utils.log.setup_console` is what looks for a terminal and NO_COLOR. The panel shares its console, so that log
    lines scroll above the panel.
    """
    consoles = [handler.console for handler in PACKAGE_LOGGER.handlers if isinstance(handler, RichHandler)]
    if consoles and logger.isEnabledFor(logging.INFO):
        return PanelView(consoles[0], title, limits)
    return LineView(limits)


class LineView:
    """Log one line every ten seconds."""

    every_s = 10.0

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._intervals = EvalInterval()

    def begin(self, progress: Progress, speed: Speed) -> None:
        """Say nothing: the opening lines have."""

    def phase(self, what: str) -> AbstractContextManager[object]:
        started_s = time.monotonic()
        return Ticker(
            lambda: logger.info("%s: %s so far", what, clock(time.monotonic() - started_s)), every_s=self.every_s
        )

    def open(self, lines: Sequence[str]) -> None:
        self.tell(lines)

    def show(self, progress: Progress, speed: Speed) -> None:
        logger.info("%s", describe_line(progress, speed, self._limits, self._intervals))

    def close(self) -> None:
        """Do nothing: lines need no end."""

    def tell(self, lines: Sequence[str]) -> None:
        for line in lines:
            logger.info("%s", line)


class PanelView:
    """Keep a panel at the bottom of a terminal; each `show` draws it once, and in a phase a thread keeps time."""

    every_s = 0.4

    def __init__(self, console: Console, title: str, limits: Limits) -> None:
        self._phase = ""  # what is done just now, beside taking turns
        self._shown: tuple[Progress, Speed] | None = None
        self._since_s = time.monotonic()  # when that was shown, or the panel was opened
        self._startup_s = 0.0  # from then until the run began
        self._console = console
        self._title = title
        self._limits = limits
        self._intervals = EvalInterval()
        self._live = Live(console=console, auto_refresh=False, transient=False)

    def open(self, lines: Sequence[str]) -> None:
        self.tell(lines)
        self._since_s = time.monotonic()
        self._live.start()

    def begin(self, progress: Progress, speed: Speed) -> None:
        self._startup_s = max(time.monotonic() - self._since_s - progress.duration_s, 0.0)
        self.show(progress, speed)

    def show(self, progress: Progress, speed: Speed) -> None:
        self._shown, self._since_s = (progress, speed), time.monotonic()
        self._draw()

    @contextmanager
    def phase(self, what: str) -> Iterator[None]:
        outer, self._phase = self._phase, what
        try:
            if self._shown is None:
                with suppress(OSError):
                    self._draw()
            with Ticker(self._draw, every_s=self.every_s):
                yield
        finally:
            self._phase = outer

    def close(self) -> None:
        self._live.transient = self._shown is None  # a panel that has shown nothing leaves nothing
        # A terminal that has gone away cannot be tidied up.
        with suppress(OSError):
            if self._shown is not None and self._live.is_started:
                self._live.update(self._panel())  # without the last phase; drawn by `stop`
            self._live.stop()

    def _draw(self) -> None:
        self._live.update(self._panel(), refresh=True)

    def tell(self, lines: Sequence[str]) -> None:
        for line in lines:
            text = Text(escape_controls(line))
            text.highlight_regex(r"^\S+", "bold")
            self._console.print(text, soft_wrap=True)

    def _panel(self) -> Panel:
        duration_s = time.monotonic() - self._since_s
        content: RenderableType = Text(self._phase)
        if self._shown is not None:
            progress, speed = self._shown
            duration_s += self._startup_s + progress.duration_s
            content = Group(self._bar(progress, speed), self._rows(progress, speed))
        phase = f"{self._phase}   " if self._phase and self._shown is not None else ""
        subtitle = f"{phase}{clock(duration_s)}"
        return framed(content, self._console, title=self._title, subtitle=subtitle, widths=_WIDTHS)

    def _rows(self, progress: Progress, speed: Speed) -> Table:
        rows = Table.grid(padding=(0, 2, 0, 0))
        rows.add_column(style="bold", no_wrap=True, min_width=7)
        rows.add_column(overflow="ellipsis", no_wrap=True)
        for label, pairs in describe_rows(progress, speed, self._intervals):
            rows.add_row(label, _pairs_text(pairs))
        return rows

    def _bar(self, progress: Progress, speed: Speed) -> Table | Text:
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
        line.add_row(bar, f"{done:,}/{limit:,.0f} {unit}   ETA {eta_text(speed)}")
        return line


def framed(content: RenderableType, console: Console, *, title: str, subtitle: str, widths: tuple[int, int]) -> Panel:
    """Return content in the frame of a run's panel, as wide as the console has room, within the least and the most."""
    least, most = widths
    return Panel(
        content,
        title=f"[bold]{escape(escape_controls(title))}",
        title_align="left",
        subtitle=subtitle,
        subtitle_align="right",
        box=box.ROUNDED,
        border_style="cyan",
        width=max(min(console.width - _ROOM, most), least),
    )


def _pairs_text(pairs: Sequence[tuple[str, str]]) -> Text:
    text = Text()
    for index, (name, value) in enumerate(pairs):
        text.append("   " if index else "")
        text.append(f"{name} " if name else "", style="dim")
        text.append(value)
    return text
