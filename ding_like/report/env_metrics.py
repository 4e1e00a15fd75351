"""Find what an env measures itself, such as success, among the metrics of a run."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ding_like.report.curve import average
from ding_like.report.experiment import Experiment
from ding_like.report.plot import COLOURS, Curve, Plot
from ding_like.types import Array

# What evaluators say of every env.
_KNOWN = frozenset(
    "env_step train_iter time_s episode_count envstep_count avg_envstep_per_episode evaluate_time avg_envstep_per_sec "
    "avg_time_per_episode reward_mean reward_std reward_max reward_min".split()
)


@dataclass(frozen=True)
class EnvMetric:
    """Hold one metric of an env: for each run, its env steps and values, as evaluations found them."""

    name: str
    lines: tuple[tuple[Array, Array], ...]

    @property
    def last(self) -> list[float]:
        """Return the newest value of each run."""
        return [float(y[-1]) for _, y in self.lines]


def env_metrics(experiment: Experiment) -> list[EnvMetric]:
    """Return what evaluations report beyond what they report of every env, by name."""
    found: dict[str, list[tuple[Array, Array]]] = {}
    for run in experiment.runs:
        for name, points in _points(run.folder / "metrics.jsonl").items():
            columns = np.array(sorted(points.items()), np.float64).T
            found.setdefault(name, []).append((columns[0], columns[1]))
    return [EnvMetric(name, tuple(lines)) for name, lines in sorted(found.items())]


def metric_plot(metric: EnvMetric, title: str) -> Plot:
    """Return the picture of a metric: a curve, or the mean of several runs with a band."""
    if len(metric.lines) == 1:
        x, y = metric.lines[0]
        return Plot(title, "", metric.name, [Curve(x, y, COLOURS[0], metric.name, dot_size=4)])
    x, mean, band = average(metric.lines)
    thin = [Curve(*line, COLOURS[0], width=0.8, alpha=0.4) for line in metric.lines]
    label = f"{metric.name}, mean of {len(metric.lines)} seeds"
    return Plot(title, "", metric.name, [*thin, Curve(x, mean, COLOURS[0], label, band=band)])


def _points(path: Path) -> dict[str, dict[int, float]]:
    """Return value by env step of each further metric; what a resumed run repeats counts once."""
    found: dict[str, dict[int, float]] = {}
    for line in path.read_text(encoding="utf-8").rpartition("\n")[0].splitlines():
        report = json.loads(line)
        if report.get("source") != "evaluator" or report.get("env_step", -1) < 0:
            continue
        for name, value in report.items():
            if name not in _KNOWN and isinstance(value, (int, float)) and math.isfinite(value):
                found.setdefault(name, {})[int(report["env_step"])] = float(value)
    return found
