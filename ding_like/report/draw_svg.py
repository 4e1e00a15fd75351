"""Draw plots as SVG by hand, for where matplotlib is not installed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np

from ding_like.errors import escape_controls
from ding_like.report.plot import Curve, Plot
from ding_like.report.text import measure, short
from ding_like.types import Array
from ding_like.utils.files import atomic_write

_WIDTH, _HEIGHT = 900, 540
_LEFT, _TOP, _RIGHT = 75, 70, 20  # room around the axes
_LEGEND_TOP = 64  # from the x axis to the first row of the legend
_LEGEND_ROW, _LEGEND_COLUMNS = 22, 3
_PX = 1.4  # pixels in a point, as in the PNG
_GREY = "#555555"
_DASHES = 'stroke-dasharray="7 5"'


@dataclass(frozen=True)
class _Axis:
    """Map values between two ends to pixels between two others."""

    low: float
    high: float
    first_px: float
    last_px: float

    def px(self, values: Array) -> Array:
        pixels: Array = self.first_px + (values - self.low) / (self.high - self.low) * (self.last_px - self.first_px)
        return pixels

    def ticks(self) -> Array:
        """Return about six round values: multiples of 1, 2 or 5 times a power of ten."""
        rough = (self.high - self.low) / 6
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
        count = np.arange(math.ceil(self.low / step), math.floor(self.high / step) + 1)
        ticks: Array = count * step
        return ticks


def draw_svg(plot: Plot, path: Path) -> None:
    """Write an SVG of 900 x 540 pixels."""
    with atomic_write(path) as file:
        file.write(escape_controls(svg_of(plot)).encode())


def svg_of(plot: Plot) -> str:
    """Return an SVG of 900 x 540 pixels as text."""
    x_axis, y_axis = _axes(plot)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
        f'height="{_HEIGHT}" font-family="sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        *_frame(plot, x_axis, y_axis),
        *(part for curve in plot.curves for part in _draw(curve, x_axis, y_axis)),
        *_legend(plot, top=float(y_axis.first_px) + _LEGEND_TOP),
        "</svg>",
    ]
    return "\n".join(parts)


def _axes(plot: Plot) -> tuple[_Axis, _Axis]:
    stop = [] if plot.stop_value is None else [np.array([plot.stop_value])]
    bands = [end for curve in plot.curves for end in (curve.band or ())]
    y = np.concatenate([*(curve.y for curve in plot.curves), *bands, *stop])
    right = max(float(curve.x.max()) for curve in plot.curves) or 1.0
    margin = 0.05 * float(np.ptp(y)) or 1.0  # a flat curve needs some room too
    bottom = _HEIGHT - _LEGEND_TOP - _LEGEND_ROW * math.ceil(len(_legend_entries(plot)) / _LEGEND_COLUMNS)
    return (
        _Axis(0.0, 1.02 * right, _LEFT, _WIDTH - _RIGHT),
        _Axis(float(y.min()) - margin, float(y.max()) + margin, bottom, _TOP),
    )


def _frame(plot: Plot, x_axis: _Axis, y_axis: _Axis) -> Iterator[str]:
    left, right, top, bottom = x_axis.first_px, x_axis.last_px, y_axis.last_px, y_axis.first_px
    yield _text(left, 30, plot.title, 'font-size="20" font-weight="bold"')
    yield _text(left, 54, plot.subtitle, f'fill="{_GREY}"')
    ticks = x_axis.ticks()
    for value, x in zip(ticks, x_axis.px(ticks), strict=True):
        yield _line((x, top), (x, bottom), 'stroke="#dddddd"')
        yield _text(x, bottom + 18, short(value), 'text-anchor="middle"')
    ticks = y_axis.ticks()
    for value, y in zip(ticks, y_axis.px(ticks), strict=True):
        yield _line((left, y), (right, y), 'stroke="#dddddd"')
        yield _text(left - 8, y + 4, measure(value), 'text-anchor="end"')
    yield _line((left, top), (left, bottom), 'stroke="black"')
    yield _line((left, bottom), (right, bottom), 'stroke="black"')
    yield _text((left + right) / 2, bottom + 40, plot.x_label, 'text-anchor="middle"')
    middle = (top + bottom) / 2
    yield _text(18, middle, plot.y_label, f'text-anchor="middle" transform="rotate(-90 18 {middle:.1f})"')
    if plot.stop_value is not None:
        stop = float(y_axis.px(np.array(plot.stop_value)))
        yield _line((left, stop), (right, stop), f'stroke="{_GREY}" {_DASHES}')


def _draw(curve: Curve, x_axis: _Axis, y_axis: _Axis) -> Iterator[str]:
    x, y = x_axis.px(curve.x), y_axis.px(curve.y)
    if curve.band is not None and len(x) == 1:
        bottom, top = (float(y_axis.px(end)[0]) for end in curve.band)
        yield _line((x[0], bottom), (x[0], top), f'stroke="{curve.colour}" stroke-width="2" opacity="0.5"')
    elif curve.band is not None:
        low, high = (y_axis.px(end) for end in curve.band)
        outline = _points(np.append(x, x[::-1]), np.append(low, high[::-1]))
        yield f'<polygon points="{outline}" fill="{curve.colour}" opacity="0.18"/>'
    if curve.width:
        yield (
            f'<polyline points="{_points(x, y)}" fill="none" stroke="{curve.colour}" '
            f'stroke-width="{curve.width * _PX:.1f}" stroke-linejoin="round" opacity="{curve.alpha}"/>'
        )
    if curve.shown_dot_size:
        dots = "".join(
            f'<circle cx="{cx:.1f}" cy="{cy:.1f}" r="{curve.shown_dot_size / 2 * _PX:.1f}"/>'
            for cx, cy in zip(x, y, strict=True)
        )
        yield f'<g fill="{curve.colour}" opacity="{curve.alpha}">{dots}</g>'


def _legend_entries(plot: Plot) -> list[tuple[str, str, float, float]]:
    """Return (label, look of the line, line width, dot size) of everything that has a name."""
    named = [curve for curve in plot.curves if curve.label]
    entries = [(curve.label, f'stroke="{curve.colour}"', curve.width, curve.shown_dot_size) for curve in named]
    if plot.stop_value is not None:
        entries.append((f"stop value {measure(plot.stop_value)}", f'stroke="{_GREY}" {_DASHES}', 1.0, 0.0))
    return entries


def _legend(plot: Plot, *, top: float) -> Iterator[str]:
    for index, (label, look, width, dot_size) in enumerate(_legend_entries(plot)):
        row, column = divmod(index, _LEGEND_COLUMNS)
        x, y = _LEFT + column * (_WIDTH - _LEFT) / _LEGEND_COLUMNS, top + _LEGEND_ROW * row
        if width:
            yield _line((x, y), (x + 28, y), f'{look} stroke-width="{width * _PX:.1f}"')
        if dot_size:
            fill = look.replace("stroke", "fill")
            yield f'<circle cx="{x + 14:.1f}" cy="{y:.1f}" r="{dot_size / 2 * _PX:.1f}" {fill}/>'
        yield _text(x + 36, y + 4, label, "")


def _points(x: Array, y: Array) -> str:
    return " ".join(f"{px:.1f},{py:.1f}" for px, py in zip(x, y, strict=True))


def _line(start: tuple[float, float], end: tuple[float, float], look: str) -> str:
    return f'<line x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" {look}/>'


def _text(x: float, y: float, text: str, look: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {look}>{escape(text)}</text>'
