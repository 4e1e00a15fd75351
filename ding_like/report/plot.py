"""Describe a picture of curves, for whatever draws it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ding_like.types import Array

# Colours that colour-blind people tell apart (Okabe and Ito 2008).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")

_LONE_DOT = 8.0  # points


@dataclass(frozen=True)
class Curve:
    """Hold one line of a picture."""

    x: Array
    y: Array
    colour: str
    label: str = ""  # "": not in the legend
    band: tuple[Array, Array] | None = None  # lower and upper end
    width: float = 2.0  # points; 0: no line
    alpha: float = 1.0
    dot_size: float = 0.0  # points; 0: no dots

    @property
    def shown_dot_size(self) -> float:
        """Return the size of its dots: a line of one point is a dot, for else there is nothing to see."""
        return self.dot_size or (_LONE_DOT if len(self.x) == 1 else 0.0)


@dataclass(frozen=True)
class Plot:
    """Hold a picture, for whatever draws it."""

    title: str
    subtitle: str
    y_label: str
    curves: Sequence[Curve]
    stop_value: float | None = None
    x_label: str = "env steps"
