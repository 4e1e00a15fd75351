"""Progress of a run: its counts, speed and time left, and how they are written."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from ding_like.report.scores import bootstrap_interval, clock, interval, measure
from ding_like.types import Config

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
    returns = progress.eval_returns
    pairs = [
        ("env step", f"{progress.env_step:,}{done}"),
        ("iter", f"{progress.train_iter:,}"),
        *(pair for pair in _rollout(progress) if pair[0] != "length"),
        *([("eval", _mean_text(tuple(returns)))] if returns else []),
        *_metrics(progress),
        *_learning(progress.learn)[:1],
        *_speed(progress, speed)[:1],
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
    return [(name, f"{value:.3g}") for name, value in list(progress.eval_metrics.items())[:_MAX_SHOWN]]


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
