"""Draw plots with matplotlib."""

from __future__ import annotations

from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter

from ding_like.errors import escape_controls
from ding_like.report.plot import Plot
from ding_like.report.text import measure, short
from ding_like.utils.files import atomic_write

_DPI = 100
_SIZE = (9.0, 5.4)  # inches: 900 x 540 pixels
_GREY = "#555555"


@rc_context({"text.parse_math": False})  # a dollar in a name is a dollar
def draw_png(plot: Plot, path: Path) -> None:
    """Write a PNG of 900 x 540 pixels."""
    # Without pyplot there is no global state and no window.
    figure = Figure(figsize=_SIZE, dpi=_DPI, layout=ConstrainedLayoutEngine(h_pad=0.12, w_pad=0.12))
    canvas = FigureCanvasAgg(figure)
    axes: Axes = figure.add_subplot()
    draw_curves(axes, plot)
    _draw_frame(figure, axes, plot)
    with atomic_write(path) as file:
        canvas.print_png(file)


def draw_curves(axes: Axes, plot: Plot) -> None:
    """Draw the curves of a plot, and what is to be reached, into axes."""
    for order, curve in enumerate(plot.curves, start=2):
        dot_size = curve.shown_dot_size
        if curve.band is not None and len(curve.x) == 1:
            axes.vlines(curve.x, *curve.band, color=curve.colour, alpha=0.5, zorder=order, clip_on=False)
        elif curve.band is not None:
            # Below all lines: a band would dim the curve of another experiment.
            axes.fill_between(
                curve.x, *curve.band, color=curve.colour, alpha=0.18, linewidth=0, zorder=1 + order / 1000
            )
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
    if plot.stop_value is not None:
        label = f"stop value {measure(plot.stop_value)}"
        axes.axhline(plot.stop_value, color=_GREY, linestyle=(0, (5, 3)), linewidth=1.2, zorder=1, label=label)


def _draw_frame(figure: Figure, axes: Axes, plot: Plot) -> None:
    title = escape_controls(plot.title)
    axes.set_title(title, loc="left", fontsize=15, fontweight="bold", pad=28 if plot.subtitle else None)
    axes.text(0.0, 1.03, plot.subtitle, transform=axes.transAxes, fontsize=10.5, color=_GREY)
    axes.set_xlabel(plot.x_label, fontsize=11)
    axes.set_ylabel(escape_controls(plot.y_label), fontsize=11)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    last = max((float(curve.x.max()) for curve in plot.curves), default=0.0)
    axes.set_xlim(left=0, right=1.03 * last or 1.0)
    axes.grid(color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower left", ncols=4, frameon=False, fontsize=10)
