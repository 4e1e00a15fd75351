"""Learning curves of what runs wrote: which lines a picture has, and what is written beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ding_like.data.team import RETURN_OF
from ding_like.report.experiment import Experiment, Run, names_of, with_metric
from ding_like.report.scores import bootstrap_interval, by_agent, interval, measure, student_interval
from ding_like.types import Array, Config

# Colours that colour-blind people tell apart (Okabe and Ito 2008).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# More points than this lie on top of each other in a picture of 900 pixels.
_MAX_POINTS = 800
# So many evaluations can still be distinguished as dots on their line.
_MAX_DOTS = 60
# The width of the smoothing kernel, as a share of the curve's length.
_BANDWIDTH = 0.02
# An interval from fewer seeds is so wide that their range is more informative.
_ENOUGH_SEEDS = 5

Line = tuple[Array, Array]  # x and y


@dataclass(frozen=True)
class Curve:
    """Line of a picture."""

    x: Array
    y: Array
    colour: str
    label: str = ""  # "": not in the legend
    band: tuple[Array, Array] | None = None  # lower and upper end
    width: float = 2.0  # points; 0: no line
    alpha: float = 1.0
    dot_size: float = 0.0  # points; 0: no dots, but of a line of one point


@dataclass(frozen=True)
class Plot:
    """Picture of curves over env steps, or updates, as `report.drawing` draws it."""

    title: str
    subtitle: str
    y_label: str
    curves: Sequence[Curve]
    stop_value: float | None = None
    x_label: str = "env steps"


def plot_run(run: Run) -> Plot:
    """Return the picture of one run: training, evaluation with its 95 % band, and what it had to reach."""
    training, evaluation = run.training, run.evaluation
    curves = []
    if len(training):
        x, y, weight = thin(training.env_step, training.mean, training.count)
        curves.append(Curve(x, y, COLOURS[0], "training, raw", width=0, dot_size=4, alpha=0.4))
        curves.append(Curve(x, smooth(x, y, weight), COLOURS[0], "training, smoothed"))
    if len(evaluation):
        band = student_interval(
            evaluation.mean, evaluation.std, evaluation.count, low=evaluation.low, high=evaluation.high
        )
        label, dot_size = "evaluation, mean and 95% CI", 5.0 * (len(evaluation) <= _MAX_DOTS)
        curves.append(Curve(evaluation.env_step, evaluation.mean, COLOURS[1], label, band=band, dot_size=dot_size))
    seed = f"seed {run.config['seed']}" if "seed" in run.config else ""
    title = ", ".join(part for part in (run.env, run.policy, seed) if part)
    return Plot(title or run.name, _verdict(run.result), "episode return", curves, run.stop_value, run.newest.unit)


def _verdict(result: Config) -> str:
    """Return how a run ended, in a line; "" if it has not."""
    if not result:
        return ""
    returns = result["eval_value_raw"]
    took = f"{result['env_step']:,} env steps" if result["env_step"] else f"{result['train_iter']:,} updates"
    return (
        f"last model: {measure(result['eval_value'])} {interval(*bootstrap_interval(returns))} over {len(returns)} "
        f"fresh episodes, after {took}"
    )


def plot_metric(experiments: Sequence[Experiment], name: str) -> Plot:
    """Return the picture of another number than the return; raises ConfigError if a run does not report it."""
    experiments = [each.with_metric(name) for each in experiments]
    runs = [run for each in experiments for run in each.runs]
    if len(runs) > 1:
        return replace(plot_experiments(experiments), y_label=name, stop_value=None)
    (run,) = runs
    sources = ((run.training, COLOURS[0], "training"), (run.evaluation, COLOURS[1], "evaluation, mean over episodes"))
    curves = [
        Curve(*thin(each.env_step, each.mean, each.count)[:2], colour, label, dot_size=5.0 * (len(each) <= _MAX_DOTS))
        for each, colour, label in sources
        if len(each)
    ]
    last = run.result.get("eval_metrics", {}).get(name)
    subtitle = "" if last is None else f"last model: {measure(float(last))}, mean of the fresh evaluation"
    return replace(plot_run(run), subtitle=subtitle, y_label=name, curves=curves, stop_value=None)


def plot_agents(run: Run, names: Sequence[str]) -> Plot:
    """Return the picture of the returns of a team's agents in evaluations, metrics of a run by these names."""
    curves = []
    for index, name in enumerate(names):
        found = with_metric(run, name).evaluation
        curve = thin(found.env_step, found.mean, found.count)
        label, dot_size = name.removeprefix(RETURN_OF), 5.0 * (len(found) <= _MAX_DOTS)
        curves.append(Curve(*curve[:2], colour_of(index), label, dot_size=dot_size))
    subtitle = by_agent(run.result.get("eval_metrics", {}))
    return replace(plot_run(run), subtitle=subtitle, y_label="return of each agent", curves=curves, stop_value=None)


def plot_experiments(experiments: Sequence[Experiment]) -> Plot:
    """Return one curve for each experiment, of several seeds their mean with a band and, thin, each of them.

    Experiments of different envs are drawn on a scale of their own each, which the labels give.
    """
    runs = [run for each in experiments for run in each.runs]
    has_evaluations = all(len(run.evaluation) for run in runs)
    envs, labels = sorted({run.env for run in runs} - {""}), names_of(experiments)
    lines = [[_line_of(run, has_evaluations=has_evaluations) for run in each.runs] for each in experiments]
    y_label = "evaluation return" if has_evaluations else "training return, smoothed"
    several = any(len(seeds) > 1 for seeds in lines)
    subtitle = "mean over seeds; a run that has ended keeps its last value" if several else ""
    if len(envs) > 1:
        subtitle = "different envs, which do not compare: 0 and 1 are the ends of each one's range"
        subtitle += "; mean over seeds" if several else ""
        y_label += ", scaled by env"
        lines, labels = _scaled([each.env for each in experiments], lines, labels)
    curves: list[Curve] = []
    for index, (label, seeds) in enumerate(zip(labels, lines, strict=True)):
        curves += _curves_of(label, seeds, colour_of(index))
    stops = {run.stop_value for run in runs}
    stop = stops.pop() if len(stops) == 1 and len(envs) < 2 else None
    x_label = " or ".join(sorted({run.newest.unit for run in runs}))
    return Plot(", ".join(envs) or "runs", subtitle, y_label, curves, stop, x_label)


def colour_of(index: int) -> str:
    """Return the colour of the experiment of a number."""
    return COLOURS[index % len(COLOURS)]


def _scaled(
    envs: Sequence[str], lines: Sequence[Sequence[Line]], labels: Sequence[str]
) -> tuple[list[list[Line]], list[str]]:
    """Return the lines of experiments with each env's range as 0 to 1, and labels that name the range."""
    ends = {}
    for env in envs:
        values = np.concatenate([y for other, seeds in zip(envs, lines, strict=True) for _, y in seeds if other == env])
        ends[env] = float(values.min()), float(values.max())
    scaled, named = [], []
    for env, seeds, label in zip(envs, lines, labels, strict=True):
        low, high = ends[env]
        scaled.append([(x, (y - low) / ((high - low) or 1.0)) for x, y in seeds])
        named.append(f"{label}: {env or 'env unknown'}, {measure(low)} to {measure(high)}")
    return scaled, named


def _curves_of(label: str, lines: Sequence[Line], colour: str) -> list[Curve]:
    if len(lines) == 1:
        return [Curve(*lines[0], colour, label)]
    x, mean, band = average(lines)
    kind = "95% CI" if len(lines) >= _ENOUGH_SEEDS else "range"
    thin_lines = [Curve(*line, colour, width=0.8, alpha=0.4) for line in lines]
    return [*thin_lines, Curve(x, mean, colour, f"{label} ({len(lines)} seeds, {kind})", band=band)]


def _line_of(run: Run, *, has_evaluations: bool) -> Line:
    if has_evaluations or not len(run.training):
        return thin(run.evaluation.env_step, run.evaluation.mean, run.evaluation.count)[:2]
    x, y, weight = thin(run.training.env_step, run.training.mean, run.training.count)
    return x, smooth(x, y, weight)


def average(lines: Sequence[Line]) -> tuple[Array, Array, tuple[Array, Array]]:
    """Return (x, mean, band) of several curves on the env steps where all of them have begun.

    Between its points a curve is taken to be straight, and after its last one to stay there. The band of five curves
    and more is the 95 % interval of the mean by Student's t, that of fewer their range.
    """
    first = max(x[0] for x, _ in lines)
    grid = np.unique(np.concatenate([x for x, _ in lines]))
    grid = grid[grid >= first]
    if len(grid) > _MAX_POINTS:
        grid = np.linspace(grid[0], grid[-1], _MAX_POINTS)
    values = np.stack([np.interp(grid, x, y) for x, y in lines])
    mean, low, high = values.mean(axis=0), values.min(axis=0), values.max(axis=0)
    if len(lines) < _ENOUGH_SEEDS:
        return grid, mean, (low, high)
    count = np.full(len(grid), len(lines))
    return grid, mean, student_interval(mean, values.std(axis=0), count, low=low, high=high)


def thin(x: Array, y: Array, weight: Array) -> tuple[Array, Array, Array]:
    """Return at most 800 points (x, y, weight) of a curve: the weighted means of equal stretches."""
    if len(x) <= _MAX_POINTS:
        return x, y, weight
    bins = np.minimum((x - x[0]) / (x[-1] - x[0]) * _MAX_POINTS, _MAX_POINTS - 1).astype(np.int64)
    total = np.bincount(bins, weight, _MAX_POINTS)
    used = total > 0
    thin_x, thin_y = (np.bincount(bins, values * weight, _MAX_POINTS)[used] / total[used] for values in (x, y))
    return thin_x, thin_y, total[used]


def smooth(x: Array, y: Array, weight: Array) -> Array:
    """Return y smoothed by a Gaussian kernel over 2 % of the curve's length on either side, weighted."""
    scale = max(_BANDWIDTH * (x[-1] - x[0]), 1e-9)
    kernel = np.exp(-0.5 * ((x[:, None] - x[None, :]) / scale) ** 2) * weight
    smoothed: Array = kernel @ y / kernel.sum(axis=1)
    return smoothed
