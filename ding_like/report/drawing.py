"""Pictures by matplotlib, of the extra viz: learning curves, and comparisons of experiments."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ding_like.errors import ConfigError, escape_controls
from ding_like.report.curve import Curve, Plot, colour_of
from ding_like.report.scores import Estimate, measure, short
from ding_like.types import Config
from ding_like.utils.files import atomic_write
from ding_like.utils.registries import pip_line

try:
    from matplotlib import rc_context
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import FuncFormatter
except ImportError as error:
    raise ConfigError(f"a picture needs matplotlib; install it with: {pip_line('viz')}") from error

GREY = "#555555"
_SIZE = (9.0, 5.4)  # inches: a PNG has 900 x 540 pixels
_DPI = 100
_LONE_DOT = 8.0  # points; a line of one point is a dot, or there would be nothing to see
# Of comparisons: inches of the curves, of a row below them, and of what frames those rows.
_WIDTH, _CURVES_HEIGHT, _ROW_HEIGHT, _FRAME_HEIGHT = 10.0, 4.2, 0.42, 1.5
_LONGEST_NAME = 28  # characters that have room
# A dollar in a name is a dollar; an SVG holds its texts as texts, and equal plots give equal files.
_SETTINGS: dict[Any, Any] = {"text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "ding_like"}


def save_plot(plot: Plot, path: Path) -> Path:
    """Draw a plot into a .png or .svg file and return its path."""
    if path.suffix not in (".png", ".svg"):
        raise ConfigError(f"a plot is written as .png or .svg, not as '{path.name}'.")
    with _drawn(plot) as figure, atomic_write(path) as file:
        figure.savefig(file, format=path.suffix[1:], metadata={"Date": None} if path.suffix == ".svg" else None)
    return path


def svg_of(plot: Plot) -> bytes:
    """Return a plot as an SVG."""
    with _drawn(plot) as figure, io.BytesIO() as file:
        figure.savefig(file, format="svg", metadata={"Date": None})
        return file.getvalue()


@contextmanager
def new_figure(size: tuple[float, float], *, dpi: int = _DPI, **layout: float) -> Iterator[Figure]:
    """Yield a figure of so many inches, drawn and saved with the package's settings."""
    with rc_context(_SETTINGS):
        # Without pyplot there is no global state and no window.
        yield Figure(figsize=size, dpi=dpi, layout=ConstrainedLayoutEngine(**layout))  # type: ignore[arg-type]


@contextmanager
def _drawn(plot: Plot) -> Iterator[Figure]:
    with new_figure(_SIZE, h_pad=0.12, w_pad=0.12) as figure:
        axes: Axes = figure.add_subplot()
        _draw_curves(axes, plot)
        title = escape_controls(plot.title)
        axes.set_title(title, loc="left", fontsize=15, fontweight="bold", pad=28 if plot.subtitle else None)
        axes.text(0.0, 1.03, plot.subtitle, transform=axes.transAxes, fontsize=10.5, color=GREY)
        last = max((float(curve.x.max()) for curve in plot.curves), default=0.0)
        axes.set_xlim(left=0, right=1.03 * last or 1.0)
        handles = axes.get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower left", ncols=4, frameon=False, fontsize=10)
        yield figure


def _draw_curves(axes: Axes, plot: Plot) -> None:
    for order, curve in enumerate(plot.curves, start=2):
        _draw_curve(axes, curve, order)
    if plot.stop_value is not None:
        label = f"stop value {measure(plot.stop_value)}"
        axes.axhline(plot.stop_value, color=GREY, linestyle=(0, (5, 3)), linewidth=1.2, zorder=1, label=label)
    axes.set_xlabel(plot.x_label, fontsize=11)
    axes.set_ylabel(escape_controls(plot.y_label), fontsize=11)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    tidy(axes)


def _draw_curve(axes: Axes, curve: Curve, order: int) -> None:
    dot_size = curve.dot_size or (_LONE_DOT if len(curve.x) == 1 else 0.0)
    if curve.band is not None and len(curve.x) == 1:
        axes.vlines(curve.x, *curve.band, color=curve.colour, alpha=0.5, zorder=order, clip_on=False)
    elif curve.band is not None:
        # Below all lines: a band would dim the curve of another experiment.
        below = 1 + order / 1000
        axes.fill_between(curve.x, *curve.band, color=curve.colour, alpha=0.18, linewidth=0, zorder=below)
    axes.plot(
        curve.x,
        curve.y,
        linewidth=curve.width,
        linestyle="-" if curve.width else "none",
        marker="o" if dot_size else None,
        markersize=dot_size,
        clip_on=not dot_size,  # a dot on the edge is whole
        markeredgewidth=0,
        color=curve.colour,
        alpha=curve.alpha,
        zorder=order,
        label=escape_controls(curve.label) or None,
    )


def tidy(axes: Axes) -> None:
    """Draw a light grid below the curves, and remove the frame's upper and right side."""
    axes.grid(color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def save_comparison(comparison: Config, curves: Plot, path: Path) -> None:
    """Write a PNG of a comparison: curves with bands above; below, means, interquartile means and each pair's odds."""
    experiments, pairs = comparison["experiments"], comparison["probability_of_improvement"]
    lower = _FRAME_HEIGHT + _ROW_HEIGHT * max(len(experiments), len(pairs))
    with new_figure((_WIDTH, _CURVES_HEIGHT + lower), dpi=90, h_pad=0.1, w_pad=0.12, hspace=0.08) as figure:
        grid = figure.add_gridspec(2, 3, height_ratios=[_CURVES_HEIGHT, lower])
        upper = figure.add_subplot(grid[0, :])
        _draw_curves(upper, curves)
        upper.set_title(escape_controls(curves.title), loc="left", fontsize=15, fontweight="bold")
        upper.set_xlim(left=0)
        upper.legend(frameon=False, fontsize=10, loc="best")
        names = [_cut(each["name"]) for each in experiments]
        colours = [colour_of(index) for index in range(len(experiments))]
        returns = "return of the last model, 95% CI"
        unnamed = [""] * len(names)
        for place, (key, title, shown) in enumerate([("mean", "mean", names), ("iqm", "interquartile mean", unnamed)]):
            means = figure.add_subplot(grid[1, place])
            _draw_estimates(means, [each[key] for each in experiments], colours, shown, title=title, x_label=returns)
            means.use_sticky_edges = False  # or a bar's end would be the frame
            means.margins(x=0.12)
        odds = figure.add_subplot(grid[1, 2])
        versus = [f"{_cut(pair['better'])}\n> {_cut(pair['than'])}" for pair in pairs]
        title, x_label = "probability of improvement", "P(left > right), 95% CI"
        _draw_estimates(odds, pairs, [GREY] * len(pairs), versus, title=title, x_label=x_label)
        odds.axvline(0.5, color=GREY, linestyle=(0, (5, 3)), linewidth=1.2, zorder=1)
        odds.set_xlim(-0.04, 1.04)
        with atomic_write(path) as file:
            figure.savefig(file, format="png", pil_kwargs={"optimize": True})


def _draw_estimates(
    axes: Axes,
    found: Sequence[Estimate],
    colours: Sequence[str],
    names: Sequence[str],
    *,
    title: str,
    x_label: str,
) -> None:
    """Draw values as strokes on the bars of their intervals, a row for each, with the names at the left."""
    for row, (each, colour) in enumerate(zip(found, colours, strict=True)):
        value = each["value"]
        if each["interval"] is not None:
            low, high = each["interval"]
            axes.barh(row, high - low, left=low, height=0.5, color=colour, alpha=0.3, linewidth=0, zorder=2)
        axes.plot([value, value], [row - 0.25, row + 0.25], color=colour, linewidth=2.5, zorder=3)
        place: dict[str, Any] = {"xytext": (0, 2), "textcoords": "offset points", "ha": "center", "va": "bottom"}
        axes.annotate(measure(value), (value, row - 0.25), fontsize=9, **place)
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    axes.set_xlabel(x_label, fontsize=9.5)
    axes.set_yticks(range(len(names)), names, fontsize=9.5)
    axes.set_ylim(len(names) - 0.4, -0.75)
    axes.tick_params(axis="y", length=0)
    tidy(axes)
    axes.grid(visible=False, axis="y")


def _cut(name: str) -> str:
    name = escape_controls(name)
    return name if len(name) <= _LONGEST_NAME else f"…{name[-_LONGEST_NAME + 1 :]}"
