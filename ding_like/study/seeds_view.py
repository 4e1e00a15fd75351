"""Status of all seeds of an experiment: on a terminal a panel with a line for each, elsewhere a line of the log."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ding_like.report.progress import Limits, Progress, Speed
from ding_like.report.run_console import LivePanel
from ding_like.report.scores import clock as clock_text
from ding_like.report.scores import measure
from ding_like.study.child_runs import MetricsTail

logger = logging.getLogger(__name__)

State = Literal["waits", "runs", "ended", "failed", "stopped"]
# In words, in this order, and the colours of each.
_WORDS: dict[State, str] = {
    "ended": "ended",
    "runs": "at work",
    "waits": "waiting",
    "stopped": "stopped",
    "failed": "failed",
}
_STYLES = {"waits": "dim", "runs": "cyan", "ended": "green", "failed": "bold red", "stopped": "yellow"}
_WIDTHS = (40, 110)  # of the panel, the least and the most
_BAR_WIDTH = 16


@dataclass
class SeedStatus:
    """Status of one seed."""

    seed: int
    tail: MetricsTail
    speed: Speed
    state: State = "waits"
    note: str = ""  # how it ended

    def settle(self, state: State, note: str) -> None:
        """Record how the seed ended."""
        self.state, self.note = state, note

    @property
    def returns(self) -> str:
        """Newest evaluation, or before there is one the return of training episodes."""
        tail = self.tail
        if not math.isnan(tail.eval_return):
            return f"eval {measure(tail.eval_return)} (best {measure(tail.best_eval)})"
        is_known = not math.isnan(tail.train_return)
        return f"return {measure(tail.train_return)}" if is_known else "no episode has ended yet"


class SeedsStatus:
    """Status of all seeds of an experiment, read from the metrics that they write."""

    def __init__(
        self,
        seeds: Sequence[int],
        metrics: Callable[[int], Path],
        limits: Limits,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._began_s = clock()
        self.seeds = {seed: SeedStatus(seed, MetricsTail(metrics(seed)), Speed(limits)) for seed in seeds}
        self.look()
        self._at_first = self.fraction

    def look(self) -> None:
        """Read what the seeds have written since."""
        for each in self.seeds.values():
            if each.state in ("waits", "runs"):
                each.tail.read()
                each.speed.add(Progress(each.tail.env_step, each.tail.train_iter, self.duration_s))

    def fraction_of(self, each: SeedStatus) -> float | None:
        """Return how much of its budget a seed has used, None without a budget."""
        if each.state == "ended":
            return 1.0
        used = self._limits.nearest(each.tail.env_step, each.tail.train_iter)
        return None if used is None else used[0]

    @property
    def fraction(self) -> float:
        """How much of all budgets is used, NaN without a budget."""
        parts = [self.fraction_of(each) for each in self.seeds.values() if each.state != "failed"]
        known = [part for part in parts if part is not None]
        return sum(known) / len(known) if known and len(known) == len(parts) else math.nan

    @property
    def duration_s(self) -> float:
        """Seconds since this command began."""
        return self._clock() - self._began_s

    @property
    def eta_text(self) -> str:
        """Time that is left as h:mm:ss, "?" while it is not known; seeds that stop early make it less."""
        gained = self.fraction - self._at_first
        return clock_text(self.duration_s * (1 - self.fraction) / gained) if gained > 0 else "?"

    def counts(self) -> str:
        """Return how many seeds are in each state, in words."""
        states = [each.state for each in self.seeds.values()]
        words = [f"{states.count(state)} {word}" for state, word in _WORDS.items() if state in states]
        return f"{len(states)} seeds: {', '.join(words)}"

    def line(self) -> str:
        """Return the status in one line."""
        parts = [self.counts()]
        for each in self.seeds.values():
            if each.state == "runs":
                done = self.fraction_of(each)
                share = "" if done is None else f" ({done:.0%})"
                parts.append(f"seed {each.seed} at {each.tail.env_step:,}{share} {each.returns}")
        return " | ".join([*parts, f"{self.eta_text} left"])


class SeedsView:
    """Panel at the bottom of a terminal, or without one a line of the log."""

    def __init__(self, console: Console | None, title: str) -> None:
        self.every_s = 10.0 if console is None else 0.5
        self._panel = None if console is None else LivePanel(console, title, widths=_WIDTHS)
        if self._panel is not None:
            self._panel.open()

    def show(self, status: SeedsStatus) -> None:
        """Show the status."""
        if self._panel is None:
            logger.info("%s", status.line())
            return
        table = Table.grid(padding=(0, 2, 0, 0))
        for style in ("bold", "", ""):
            table.add_column(style=style, no_wrap=True)
        table.add_column(no_wrap=True, justify="right")
        table.add_column(no_wrap=True, overflow="ellipsis")
        room = max(self._panel.console.height - 4, 1)  # a panel that is higher than the terminal cannot be drawn over
        shown = list(status.seeds.values())
        if len(shown) > room:
            shown = sorted(shown, key=lambda each: each.state not in ("runs", "waits"))[:room]
        for each in shown:
            table.add_row(*_cells(each, status.fraction_of(each)))
        subtitle = f"{status.counts()}   {clock_text(status.duration_s)}   {status.eta_text} left"
        self._panel.draw(table, subtitle)

    def close(self) -> None:
        """Give the terminal back, the panel as it is; may be called again."""
        if self._panel is not None:
            self._panel.close()


def _cells(each: SeedStatus, done: float | None) -> tuple[str, Text, ProgressBar | str, str, str]:
    bar: ProgressBar | str = ""
    if done is not None:
        bar = ProgressBar(total=1.0, completed=done, width=_BAR_WIDTH, complete_style="cyan", finished_style="green")
    steps = f"{each.tail.env_step:,}" if each.tail.env_step else ""
    per_s = each.speed.speeds[0]
    speed = f"   {per_s:,.0f}/s" if per_s > 0 else ""
    note = "" if each.state == "waits" else each.note or f"{each.returns}{speed}"
    return f"seed {each.seed}", Text(each.state, style=_STYLES[each.state]), bar, steps, note
