"""Say how the seeds of an experiment stand: which run, how far they are, how long it takes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ding_like.report.progress import Limits
from ding_like.report.text import clock, measure
from ding_like.study.tail import MetricsTail

State = Literal["waits", "runs", "ended", "failed", "stopped"]
_WINDOW_S = 10.0  # speeds are those of this last stretch


@dataclass
class SeedStanding:
    """Hold how one seed stands."""

    seed: int
    tail: MetricsTail
    state: State = "waits"
    note: str = ""  # how it ended
    _recent: deque[tuple[float, int]] = field(default_factory=deque, repr=False)

    def look(self, now_s: float) -> None:
        """Take in what the seed has written since."""
        self.tail.read()
        self._recent.append((now_s, self.tail.env_step))
        while len(self._recent) > 2 and now_s - self._recent[1][0] >= _WINDOW_S:
            self._recent.popleft()

    @property
    def speed(self) -> float:
        """Return env steps per second lately, NaN before there are two looks."""
        if len(self._recent) < 2:
            return math.nan
        (old_s, old), (new_s, new) = self._recent[0], self._recent[-1]
        return (new - old) / max(new_s - old_s, 1e-9)


class Standings:
    """Hold how all seeds stand."""

    def __init__(
        self, seeds: Sequence[int], metrics: Callable[[int], Path], limits: Limits, *, clock: Callable[[], float]
    ) -> None:
        self.limits = limits
        self._clock = clock
        self._began_s = clock()
        self.seeds = {seed: SeedStanding(seed, MetricsTail(metrics(seed))) for seed in seeds}
        self.look()
        self._at_first = self.fraction

    def look(self) -> None:
        """Take in what the seeds have written since."""
        for standing in self.seeds.values():
            if standing.state in ("waits", "runs"):
                standing.look(self._clock())

    def fraction_of(self, standing: SeedStanding) -> float | None:
        """Return how much of its budget a seed has used, None without a budget."""
        if standing.state == "ended":
            return 1.0
        used = self.limits.nearest(standing.tail.env_step, standing.tail.train_iter)
        return None if used is None else used[0]

    @property
    def fraction(self) -> float:
        """Return how much of all budgets is used, NaN without a budget."""
        parts = [self.fraction_of(standing) for standing in self.seeds.values() if standing.state != "failed"]
        known = [part for part in parts if part is not None]
        return sum(known) / len(known) if known and len(known) == len(parts) else math.nan

    @property
    def duration_s(self) -> float:
        return self._clock() - self._began_s

    @property
    def eta_text(self) -> str:
        """Return the time that is left as h:mm:ss, "?" while it is not known; seeds that stop early make it less."""
        gained = self.fraction - self._at_first
        if not gained > 0:
            return "?"
        return clock(self.duration_s * (1 - self.fraction) / gained)

    def count(self, state: State) -> int:
        return sum(standing.state == state for standing in self.seeds.values())

    def counts(self) -> str:
        """Return how many seeds are in each state, in words."""
        words = [f"{self.count(state)} {word}" for state, word in _WORDS if self.count(state)]
        return f"{len(self.seeds)} seeds: {', '.join(words)}"

    def line(self) -> str:
        """Return the gist in one line."""
        parts = [self.counts()]
        for standing in self.seeds.values():
            if standing.state == "runs":
                done = self.fraction_of(standing)
                share = "" if done is None else f" ({done:.0%})"
                parts.append(f"seed {standing.seed} at {standing.tail.env_step:,}{share} {returns_text(standing)}")
        return " | ".join([*parts, f"{self.eta_text} left"])


_WORDS: tuple[tuple[State, str], ...] = (
    ("ended", "ended"),
    ("runs", "at work"),
    ("waits", "waiting"),
    ("stopped", "stopped"),
    ("failed", "failed"),
)


def returns_text(standing: SeedStanding) -> str:
    """Return the newest evaluation of a seed, or before there is one the return of its training episodes."""
    tail = standing.tail
    if not math.isnan(tail.eval_return):
        return f"eval {measure(tail.eval_return)} (best {measure(tail.best_eval)})"
    return f"return {measure(tail.train_return)}" if not math.isnan(tail.train_return) else "no episode has ended yet"
