"""Turn what runs wrote into a picture of their learning curves."""

from __future__ import annotations

import importlib.util
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ding_like.errors import ConfigError
from ding_like.report.interval import bootstrap_interval, student_interval
from ding_like.report.plot import COLOURS, Curve, Plot
from ding_like.report.runs import PLAN_FILE, Run
from ding_like.report.text import interval, measure
from ding_like.types import Array
from ding_like.utils.extras import pip_line
from ding_like.utils.seeding import make_rng

logger = logging.getLogger(__name__)

# More points than this lie on top of each other in a picture of 900 pixels.
_MAX_POINTS = 800
# So many evaluations can still be told apart as dots on their line.
_MAX_DOTS = 60
# The width of the smoothing kernel, as a share of the curve's length.
_BANDWIDTH = 0.02
# An interval from fewer seeds is so wide that it says less than their range.
_ENOUGH_SEEDS = 5


def plot_run(run: Run) -> Plot:
    """Return the picture of one run: training, evaluation with its 95 % band, and what it had to reach."""
    training, evaluation = run.training, run.evaluation
    curves = []
    if len(training):
        x, y, weight = thin(training.env_step, training.mean, training.count)
        curves.append(Curve(x, y, COLOURS[0], "training, raw", width=0, dot_size=4, alpha=0.4))
        curves.append(Curve(x, smooth(x, y, weight), COLOURS[0], "training, smoothed"))
    if len(evaluation):
        ends = student_interval(
            evaluation.mean, evaluation.std, evaluation.count, low=evaluation.low, high=evaluation.high
        )
        label = "evaluation, mean and 95% CI"
        dot_size = 5.0 if len(evaluation) <= _MAX_DOTS else 0.0
        curves.append(Curve(evaluation.env_step, evaluation.mean, COLOURS[1], label, band=ends, dot_size=dot_size))
    seed = f"seed {run.config['seed']}" if "seed" in run.config else ""
    title = ", ".join(part for part in (run.env, run.policy, seed) if part)
    return Plot(title or run.name, _verdict(run.result), "episode return", curves, run.stop_value)


def plot_metric(runs: Sequence[Run], name: str) -> Plot:
    """Return the picture of another number than the return, of runs as `with_metric` gives them."""
    if len(runs) > 1:
        return replace(plot_groups(runs), y_label=name, stop_value=None)
    (run,) = runs
    curves = [
        Curve(*thin(each.env_step, each.mean, each.count)[:2], colour, label, dot_size=5.0 * (len(each) <= _MAX_DOTS))
        for each, colour, label in (
            (run.training, COLOURS[0], "training"),
            (run.evaluation, COLOURS[1], "evaluation, mean over episodes"),
        )
        if len(each)
    ]
    last = run.result.get("eval_metrics", {}).get(name)
    subtitle = "" if last is None else f"last model: {measure(float(last))}, mean of the fresh evaluation"
    return replace(plot_run(run), subtitle=subtitle, y_label=name, curves=curves, stop_value=None)


def _verdict(result: Mapping[str, Any]) -> str:
    """Return how a run ended, in a line; "" if it has not."""
    if not result:
        return ""
    returns = result["eval_value_raw"]
    ends = bootstrap_interval(returns, rng=make_rng(0, "interval"))
    return (
        f"last model: {measure(result['eval_value'])} {interval(*ends)} over {len(returns)} fresh episodes, "
        f"after {result['env_step']:,} env steps"
    )


def plot_groups(runs: Sequence[Run]) -> Plot:
    """Return one curve for each experiment, and mean and band where several runs differ in their seed only.

    Runs of different envs are drawn on a scale of their own each, which the picture says.
    """
    has_evaluations = all(len(run.evaluation) for run in runs)
    groups, envs = group_runs(runs), sorted({run.env for run in runs} - {""})
    lines = {name: [_line_of(run, has_evaluations=has_evaluations) for run in group] for name, group in groups.items()}
    y_label = "evaluation return" if has_evaluations else "training return, smoothed"
    several, labels = any(len(group) > 1 for group in groups.values()), {name: name for name in groups}
    subtitle = "mean over seeds; a run that has ended keeps its last value" if several else ""
    if len(envs) > 1:
        subtitle = "different envs, which do not compare: 0 and 1 are the ends of each one's range" + "; " * several
        subtitle += "mean over seeds" * several
        y_label += ", scaled by env"
        lines, labels = _scaled(groups, lines)
    curves: list[Curve] = []
    for name, colour in zip(groups, _cycle(len(groups)), strict=True):
        curves += _curves_of(labels[name], lines[name], colour)
    stops = {run.stop_value for run in runs}
    stop = stops.pop() if len(stops) == 1 and len(envs) < 2 else None
    return Plot(", ".join(envs) or "runs", subtitle, y_label, curves, stop)


Lines = dict[str, list[tuple[Array, Array]]]


def _scaled(groups: Mapping[str, Sequence[Run]], lines: Lines) -> tuple[Lines, dict[str, str]]:
    """Return the lines of groups with each env's range as 0 to 1, and labels that say which range that is."""
    values: dict[str, list[Array]] = {}
    for name, group in groups.items():
        values.setdefault(group[0].env, []).extend(y for _, y in lines[name])
    ends = {env: (float(np.concatenate(each).min()), float(np.concatenate(each).max())) for env, each in values.items()}
    scaled, labels = {}, {}
    for name, group in groups.items():
        low, high = ends[group[0].env]
        scaled[name] = [(x, (y - low) / ((high - low) or 1.0)) for x, y in lines[name]]
        labels[name] = f"{name}: {group[0].env or 'env unknown'}, {measure(low)} to {measure(high)}"
    return scaled, labels


def curves_of_seeds(name: str, runs: Sequence[Run], colour: str, *, has_evaluations: bool) -> list[Curve]:
    """Return the curve of a run, or of several seeds their mean with its band and, thin, each of them."""
    return _curves_of(name, [_line_of(run, has_evaluations=has_evaluations) for run in runs], colour)


def _curves_of(label: str, lines: Sequence[tuple[Array, Array]], colour: str) -> list[Curve]:
    if len(lines) == 1:
        return [Curve(*lines[0], colour, label)]
    x, mean, band = average(lines)
    kind = "95% CI" if len(lines) >= _ENOUGH_SEEDS else "range"
    thin_lines = [Curve(*line, colour, width=0.8, alpha=0.4) for line in lines]
    return [*thin_lines, Curve(x, mean, colour, f"{label} ({len(lines)} seeds, {kind})", band=band)]


def group_runs(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Return runs by experiment: the seeds of one folder, and folders that differ in `_seed<number>` only."""
    stems = [_stem(run) for run in runs]
    alone = {stem for stem in stems if stems.count(stem) == 1}
    parents = {parent for parent, _ in stems}
    groups: dict[str, list[Run]] = {}
    for run, (parent, stem) in zip(runs, stems, strict=True):
        own = f"{stem}/{run.name}" if _is_of_seeds(run) else run.name
        name = own if (parent, stem) in alone else stem
        groups.setdefault(name if len(parents) == 1 else f"{parent.name}/{name}", []).append(run)
    return groups


def _stem(run: Run) -> tuple[Path, str]:
    """Return the place and the name of a run's experiment."""
    folder = run.folder.resolve()
    if _is_of_seeds(run):
        return folder.parent.parent, folder.parent.name
    return folder.parent, re.sub(r"_seed\d+$", "", run.name)


def _is_of_seeds(run: Run) -> bool:
    return (run.folder.resolve().parent / PLAN_FILE).is_file()


def _cycle(count: int) -> list[str]:
    return [COLOURS[index % len(COLOURS)] for index in range(count)]


def _line_of(run: Run, *, has_evaluations: bool) -> tuple[Array, Array]:
    if has_evaluations or not len(run.training):
        return thin(run.evaluation.env_step, run.evaluation.mean, run.evaluation.count)[:2]
    x, y, weight = thin(run.training.env_step, run.training.mean, run.training.count)
    return x, smooth(x, y, weight)


def average(lines: Sequence[tuple[Array, Array]]) -> tuple[Array, Array, tuple[Array, Array]]:
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
    sums = (np.bincount(bins, values * weight, _MAX_POINTS)[used] for values in (x, y))
    thin_x, thin_y = (column / total[used] for column in sums)
    return thin_x, thin_y, total[used]


def smooth(x: Array, y: Array, weight: Array) -> Array:
    """Return y smoothed by a Gaussian kernel over 2 % of the curve's length on either side, weighted."""
    scale = max(_BANDWIDTH * (x[-1] - x[0]), 1e-9)
    kernel = np.exp(-0.5 * ((x[:, None] - x[None, :]) / scale) ** 2) * weight
    smoothed: Array = kernel @ y / kernel.sum(axis=1)
    return smoothed


def save_plot(plot: Plot, path: Path) -> Path:
    """Draw a plot into a .png or .svg file and return its path.

    A PNG needs matplotlib; without it an SVG of the same name is written.
    """
    if path.suffix not in (".png", ".svg"):
        raise ConfigError(f"a plot is written as .png or .svg, not as '{path.name}'.")
    if path.suffix == ".png" and importlib.util.find_spec("matplotlib") is not None:
        from ding_like.report.draw_png import draw_png

        draw_png(plot, path)
        return path
    if path.suffix == ".png":
        logger.info("matplotlib is not installed, so the plot is an SVG; a PNG needs: %s", pip_line("viz"))
    from ding_like.report.draw_svg import draw_svg

    path = path.with_suffix(".svg")
    draw_svg(plot, path)
    return path
