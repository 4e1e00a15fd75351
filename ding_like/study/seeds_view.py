"""Show all seeds of an experiment at once: a line each on a terminal, one line now and then elsewhere."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.logging import RichHandler
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ding_like.report.run_console import framed
from ding_like.report.text import clock
from ding_like.study.standing import SeedStanding, Standings, returns_text
from ding_like.utils.log import PACKAGE_LOGGER

logger = logging.getLogger(__name__)

_WIDTHS = (40, 110)  # of the panel, the least and the most
_BAR_WIDTH = 16
_STYLES = {"waits": "dim", "runs": "cyan", "ended": "green", "failed": "bold red", "stopped": "yellow"}


class SeedsView(Protocol):
    """Show how the seeds stand."""

    every_s: float  # how often it wants news

    def show(self, standings: Standings) -> None:
        """Show it."""

    def close(self) -> None:
        """Give the terminal back; may be called again."""


def choose_seeds_view(title: str) -> SeedsView:
    """Return a panel where the command line logs to a terminal through rich, lines of the log everywhere else."""
    consoles = [handler.console for handler in PACKAGE_LOGGER.handlers if isinstance(handler, RichHandler)]
    return SeedsPanel(consoles[0], title) if consoles and logger.isEnabledFor(logging.INFO) else SeedsLines()


class SeedsLines:
    """Log one line every ten seconds."""

    every_s = 10.0

    def show(self, standings: Standings) -> None:
        """Log it."""
        logger.info("%s", standings.line())

    def close(self) -> None:
        """Do nothing: lines need no end."""


class SeedsPanel:
    """Keep a panel with a line for each seed at the bottom of a terminal."""

    every_s = 0.5

    def __init__(self, console: Console, title: str) -> None:
        self._console = console
        self._title = title
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._live.start()

    def show(self, standings: Standings) -> None:
        """Draw it; a terminal that has gone away is left alone."""
        with suppress(OSError):
            self._live.update(self._panel(standings), refresh=True)

    def close(self) -> None:
        """Leave the panel as it stands."""
        with suppress(OSError):
            self._live.stop()

    def _panel(self, standings: Standings) -> Panel:
        table = Table.grid(padding=(0, 2, 0, 0))
        for style in ("bold", "", ""):
            table.add_column(style=style, no_wrap=True)
        table.add_column(no_wrap=True, justify="right")
        table.add_column(no_wrap=True, overflow="ellipsis")
        room = self._console.height - 4  # a panel that is higher than the terminal cannot be drawn over
        shown = list(standings.seeds.values())
        shown = sorted(shown, key=_is_settled)[: max(room, 1)] if len(shown) > room else shown
        for standing in shown:
            table.add_row(*_cells(standing, standings))
        subtitle = f"{standings.counts()}   {clock(standings.duration_s)}   {standings.eta_text} left"
        return framed(table, self._console, title=self._title, subtitle=subtitle, widths=_WIDTHS)


def _is_settled(standing: SeedStanding) -> bool:
    return standing.state not in ("runs", "waits")


def _cells(standing: SeedStanding, standings: Standings) -> tuple[str, Text, ProgressBar | str, str, str]:
    done = standings.fraction_of(standing)
    bar: ProgressBar | str = ""
    if done is not None:
        bar = ProgressBar(total=1.0, completed=done, width=_BAR_WIDTH, complete_style="cyan", finished_style="green")
    state = Text(standing.state, style=_STYLES[standing.state])
    steps = f"{standing.tail.env_step:,}" if standing.tail.env_step else ""
    if standing.state == "waits":
        return f"seed {standing.seed}", state, bar, steps, ""
    if standing.note:
        return f"seed {standing.seed}", state, bar, steps, standing.note
    speed = f"   {standing.speed:,.0f}/s" if standing.speed > 0 else ""
    return f"seed {standing.seed}", state, bar, steps, f"{returns_text(standing)}{speed}"
