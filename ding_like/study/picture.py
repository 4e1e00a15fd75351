"""Draw what a study found: its history, and its trials over each setting."""

from __future__ import annotations

import importlib.util
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ding_like.report.curve import COLOURS
from ding_like.utils.extras import pip_line
from ding_like.utils.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes

logger = logging.getLogger(__name__)

_DPI = 100
_PANEL = (3.6, 2.9)  # inches
_COLUMNS = 3
_MAX_PANELS = 9
_GREY = "#555555"
_LABEL = 18  # characters of a choice that are shown


@dataclass(frozen=True)
class TrialPoint:
    """Hold what one trial gave."""

    number: int
    value: float
    params: Mapping[str, Any]  # numbers, or texts that were chosen
    was_pruned: bool = False  # then the value is the last that was known


@dataclass(frozen=True)
class StudyPicture:
    """Hold a picture of a study, for whatever draws it."""

    title: str
    points: Sequence[TrialPoint]
    keys: Sequence[str]
    logarithmic: Sequence[str]
    importances: Mapping[str, float]


def save_study_picture(picture: StudyPicture, path: Path) -> Path | None:
    """Draw a study's history and slices into a PNG and return its path; None, said in the log, without matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        logger.info("no picture: matplotlib is not installed; install it with: %s", pip_line("viz"))
        return None
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    keys = sorted(picture.keys, key=lambda key: -picture.importances.get(key, 0.0))[: _MAX_PANELS - 1]
    columns = 2 if len(keys) == 3 else min(_COLUMNS, len(keys) + 1)
    rows = math.ceil((len(keys) + 1) / columns)
    figure = Figure(figsize=(_PANEL[0] * columns, _PANEL[1] * rows + 0.6), dpi=_DPI, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    panels = [figure.add_subplot(rows, columns, index + 1) for index in range(len(keys) + 1)]
    _draw_history(panels[0], picture)
    for axes, key in zip(panels[1:], keys, strict=True):
        _draw_slice(axes, picture, key)
    best = max((point for point in picture.points if not point.was_pruned), key=lambda point: point.value)
    title = f"{picture.title}: best {best.value:.4g}, trial {best.number}"
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
    with atomic_write(path) as file:
        canvas.print_png(file)
    return path


def _draw_history(axes: Axes, picture: StudyPicture) -> None:
    ended = sorted((point for point in picture.points if not point.was_pruned), key=lambda point: point.number)
    best, line = -math.inf, []
    for point in ended:
        best = max(best, point.value)
        line.append((point.number, best))
    _dots(axes, [(point.number, point) for point in picture.points])
    axes.step(*zip(*line, strict=True), where="post", color=COLOURS[1], linewidth=1.6, label="best so far")
    axes.set_title("history", loc="left", fontsize=10)
    axes.set_xlabel("trial", fontsize=9)
    _count_in_whole_numbers(axes)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    _frame(axes)


def _draw_slice(axes: Axes, picture: StudyPicture, key: str) -> None:
    having = [point for point in picture.points if key in point.params]
    if any(isinstance(point.params[key], str) for point in having):
        choices = sorted({str(point.params[key]) for point in having})
        _dots(axes, [(choices.index(str(point.params[key])), point) for point in having])
        axes.set_xticks(range(len(choices)), [choice[:_LABEL] for choice in choices], fontsize=8)
        axes.set_xlim(-0.5, len(choices) - 0.5)
    else:
        _dots(axes, [(float(point.params[key]), point) for point in having])
        if key in picture.logarithmic:
            axes.set_xscale("log")
        elif all(isinstance(point.params[key], int) for point in having):
            _count_in_whole_numbers(axes)
    share = picture.importances.get(key)
    axes.set_title(key.removeprefix("policy.") + ("" if share is None else f"  ({share:.0%})"), loc="left", fontsize=10)
    _frame(axes)


def _count_in_whole_numbers(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _dots(axes: Axes, places: Sequence[tuple[float, TrialPoint]]) -> None:
    """Draw trials as dots, those that were ended early hollow."""
    for was_pruned, face, label in ((False, COLOURS[0], "trial"), (True, "none", "ended early")):
        some = [(x, point.value) for x, point in places if point.was_pruned == was_pruned]
        if some:
            x, y = zip(*some, strict=True)
            axes.scatter(x, y, s=22, facecolors=face, edgecolors=COLOURS[0], linewidths=1.0, alpha=0.8, label=label)


def _frame(axes: Axes) -> None:
    axes.set_ylabel("return of the last model", fontsize=9)
    axes.tick_params(labelsize=8, colors=_GREY)
    axes.grid(color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
