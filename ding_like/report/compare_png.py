"""Draw a comparison of experiments with matplotlib: curves, intervals, probabilities of improvement."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter

from ding_like.errors import escape_controls
from ding_like.report.compare import Comparison, colour_of, curves_plot
from ding_like.report.draw_png import draw_curves
from ding_like.report.scores import Estimate
from ding_like.report.text import measure, short
from ding_like.utils.files import atomic_write

_DPI = 90
_WIDTH = 10.0  # inches
_CURVES_HEIGHT = 4.2
_ROW_HEIGHT = 0.42  # of an experiment or a pair
_FRAME_HEIGHT = 1.5  # of titles and labels of the lower row
_GREY = "#555555"
_LONGEST = 28  # characters of a name that have room


@rc_context({"text.parse_math": False})  # a dollar in a name is a dollar
def draw_comparison(comparison: Comparison, path: Path) -> None:
    """Write a PNG: curves with bands above; below, mean and interquartile mean, and each pair's probability."""
    rows = max(len(comparison.entries), len(comparison.pairs))
    lower = _FRAME_HEIGHT + _ROW_HEIGHT * rows
    figure = Figure(
        figsize=(_WIDTH, _CURVES_HEIGHT + lower),
        dpi=_DPI,
        layout=ConstrainedLayoutEngine(h_pad=0.1, w_pad=0.12, hspace=0.08),
    )
    canvas = FigureCanvasAgg(figure)
    grid = figure.add_gridspec(2, 3, height_ratios=[_CURVES_HEIGHT, lower])
    _draw_curves(figure.add_subplot(grid[0, :]), comparison)
    means = figure.add_subplot(grid[1, 0])
    _draw_estimates(means, "mean", [(each.name, each.mean) for each in comparison.entries])
    iqms = figure.add_subplot(grid[1, 1])
    _draw_estimates(iqms, "interquartile mean", [("", each.iqm) for each in comparison.entries])
    _draw_pairs(figure.add_subplot(grid[1, 2]), comparison)
    with atomic_write(path) as file:
        canvas.print_png(file, pil_kwargs={"optimize": True})


def _draw_curves(axes: Axes, comparison: Comparison) -> None:
    plot = curves_plot(comparison)
    draw_curves(axes, plot)
    axes.set_title(escape_controls(plot.title), loc="left", fontsize=15, fontweight="bold")
    axes.set_xlabel(plot.x_label, fontsize=11)
    axes.set_ylabel(plot.y_label, fontsize=11)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axes.set_xlim(left=0)
    _tidy(axes)
    axes.legend(frameon=False, fontsize=10, loc="best")


def _draw_estimates(axes: Axes, title: str, rows: Sequence[tuple[str, Estimate]]) -> None:
    for index, (_, found) in enumerate(rows):
        _draw_interval(axes, index, found, colour_of(index))
    axes.use_sticky_edges = False  # or a bar's end would be the frame
    axes.margins(x=0.12)
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    axes.set_xlabel("return of the last model, 95% CI", fontsize=9.5)
    _name_rows(axes, [name for name, _ in rows])


def _draw_pairs(axes: Axes, comparison: Comparison) -> None:
    for index, pair in enumerate(comparison.pairs):
        _draw_interval(axes, index, pair.probability, _GREY)
    axes.axvline(0.5, color=_GREY, linestyle=(0, (5, 3)), linewidth=1.2, zorder=1)
    axes.set_xlim(-0.04, 1.04)
    axes.set_title("probability of improvement", loc="left", fontsize=11, fontweight="bold")
    axes.set_xlabel("P(left > right), 95% CI", fontsize=9.5)
    _name_rows(axes, [f"{_cut(pair.better)}\n> {_cut(pair.than)}" for pair in comparison.pairs])


def _draw_interval(axes: Axes, row: int, found: Estimate, colour: str) -> None:
    if found.interval is not None:
        low, high = found.interval
        axes.barh(row, high - low, left=low, height=0.5, color=colour, alpha=0.3, linewidth=0, zorder=2)
    axes.plot([found.value, found.value], [row - 0.25, row + 0.25], color=colour, linewidth=2.5, zorder=3)
    axes.annotate(
        measure(found.value), (found.value, row - 0.25), xytext=(0, 2), textcoords="offset points",
        ha="center", va="bottom", fontsize=9,
    )  # fmt: skip


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), [name if "\n" in name else _cut(name) for name in names], fontsize=9.5)
    axes.set_ylim(len(names) - 0.4, -0.75)
    axes.tick_params(axis="y", length=0)
    _tidy(axes)
    axes.grid(visible=False, axis="y")


def _cut(name: str) -> str:
    name = escape_controls(name)
    return name if len(name) <= _LONGEST else f"…{name[-_LONGEST + 1 :]}"


def _tidy(axes: Axes) -> None:
    axes.grid(color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
