"""Seeds of an experiment: each is started or resumed, all are shown, and how each ended is reported."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ding_like.errors import ConfigError
from ding_like.pipeline.process import StopSignal
from ding_like.report.experiment import METRICS_FILE, SeedsPlan, last_lines, read_result, seed_folder, seed_log
from ding_like.report.run_console import Limits, LivePanel, Progress, Speed, log_terminal
from ding_like.report.scores import clock as clock_text
from ding_like.report.scores import measure
from ding_like.study.child_runs import ChildRuns, Ended, MetricsTail, has_point, set_aside, text_hash, wait_until_free

logger = logging.getLogger(__name__)

_LOOK_S = 0.5  # between two looks at what the seeds have written
_LAST_LINES = 5  # of a failed seed's output that are shown
_SERIAL = ("serial", "serial_onpolicy")


@dataclass(frozen=True)
class Failure:
    """Seed that failed, and how."""

    seed: int
    how: str
    log: Path
    lines: tuple[str, ...]  # its last words


class SeedRuns:
    """Seeds of a plan that have not ended, run `jobs` at a time.

    One that fails leaves the others alone. The first SIGINT or SIGTERM has all of them save a point and leave.
    """

    def __init__(
        self,
        folder: Path,
        plan: SeedsPlan,
        *,
        jobs: int,
        reopens: bool = False,  # whether those that have ended go on too, to other limits of the plan
    ) -> None:
        self._folder = folder
        self._plan = plan
        self._jobs = jobs
        self._reopens = reopens
        self.failures: list[Failure] = []

    def run(self, signals: StopSignal) -> None:
        """Run to the end, or until `signals` has received one.

        Raises ConfigError if a seed that has ended is to go on and saved no point to go on from.
        """
        plan, folder = self._plan, self._folder
        ended = {seed for seed in plan.seeds if read_result(seed_folder(folder, seed))}
        if self._reopens:
            self._reopen(ended)
            ended = set()
        limits = Limits(plan.max_env_step, plan.max_train_iter)
        status = SeedsStatus(plan.seeds, lambda seed: seed_folder(folder, seed) / METRICS_FILE, limits)
        wait_until_free([seed_folder(folder, seed) for seed in plan.seeds if seed not in ended], signals)
        with ChildRuns(self._jobs) as children:
            for seed in plan.seeds:
                if seed in ended:
                    status.seeds[seed].settle("ended", _ending(folder, seed))
                else:
                    children.start(str(seed), partial(self._command, seed), log=seed_log(folder, seed))
            self._watch(children, status, signals)

    def _reopen(self, ended: Iterable[int]) -> None:
        """Take back the results of seeds that are to go on: they have not ended any more."""
        folders = [seed_folder(self._folder, seed) for seed in sorted(ended)]
        lost = [str(folder) for folder in folders if not has_point(folder)]
        if lost:
            raise ConfigError(f"{', '.join(lost)} ended and saved no point to go on from: other limits need a new run.")
        for folder in folders:
            (folder / "result.json").unlink()

    def _watch(self, children: ChildRuns, status: SeedsStatus, signals: StopSignal) -> None:
        view = SeedsView(log_terminal(logger), str(self._folder))
        shown_s = time.monotonic()

        def look() -> None:
            nonlocal shown_s
            for name in children.running:
                status.seeds[int(name)].state = "runs"
            status.look()
            if time.monotonic() - shown_s >= view.every_s:
                view.show(status)
                shown_s = time.monotonic()

        try:
            children.supervise(
                signals,
                what="seeds",
                end=lambda ended, is_leaving: self._end(ended, status.seeds[int(ended.name)], is_leaving=is_leaving),
                look=look,
                every_s=_LOOK_S,
            )
            view.show(status)
        finally:
            view.close()

    def _end(self, ended: Ended, status: SeedStatus, *, is_leaving: bool) -> None:
        """Record how a seed's process ended."""
        seed = status.seed
        status.tail.read()
        if ended.status == 0 and read_result(seed_folder(self._folder, seed)):
            status.settle("ended", _ending(self._folder, seed))
            logger.info("seed %d ended: %s", seed, status.note)
            return
        if is_leaving and (ended.was_asked or ended.status == 0):
            status.settle("stopped", "saved" if has_point(seed_folder(self._folder, seed)) else "")
            return
        log = seed_log(self._folder, seed)
        lines = tuple(last_lines(log, _LAST_LINES))
        self.failures.append(Failure(seed, ended.how, log, lines))
        status.settle("failed", lines[-1] if lines else ended.how)
        logger.error("seed %d %s; the others go on. Its output is in %s", seed, ended.how, log)

    def _command(self, seed: int) -> list[str]:
        """Return the arguments of `ding` by which a seed begins, or goes on where it has saved a point."""
        folder, plan = seed_folder(self._folder, seed), self._plan
        if has_point(folder):
            # The plan's limits, always: the seed's own point may be of before they were changed.
            return ["--resume", str(folder), *_limits_of(plan)]
        set_aside(folder)
        begin = ["-m", plan.mode, "-c", plan.config, "-s", str(seed), "--exp-name", str(folder), *plan.arguments]
        if os.path.isfile(plan.config) and text_hash(plan.config) == plan.config_sha256:
            return [*begin, *plan.overrides]
        if plan.mode not in _SERIAL:
            logger.warning("%s is not what it was when the experiment began: seed %d may differ", plan.config, seed)
            return [*begin, *plan.overrides]
        # All seeds are to train alike: the config as it was, resolved, with the overrides.
        saved = str(self._folder / "total_config.py")
        logger.warning("%s is not what it was when the experiment began: seed %d runs %s", plan.config, seed, saved)
        return [saved if word == plan.config else word for word in begin]


def _limits_of(plan: SeedsPlan) -> list[str]:
    """Return the limits of a plan as arguments of `ding`."""
    words = plan.arguments
    places = [words.index(flag) for flag in ("--env-step", "--train-iter") if flag in words]
    return [word for place in places for word in words[place : place + 2]]


def _ending(folder: Path, seed: int) -> str:
    result = read_result(seed_folder(folder, seed))
    why = ", reached stop_value" if result.get("stop") else ""
    return f"last model returns {measure(float(result['eval_value']))} after {result['env_step']:,} env steps{why}"


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
