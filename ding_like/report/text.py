"""Numbers as text for people."""

from __future__ import annotations

import math


def measure(value: float) -> str:
    """Return a measured value with the digits that matter: 0.0213, 46.2, 3,240; "-" for what is not there."""
    if not math.isfinite(value):
        return "-" if math.isnan(value) else str(value)
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}".removesuffix(".0") if abs(value) >= 10 else f"{value:.3g}"


def short(value: float) -> str:
    """Return a count in at most four figures: 500, 20k, 17.9k, 1.5M, 1e+10."""
    for limit, unit in ((1e3, ""), (1e6, "k"), (1e9, "M")):
        if abs(value) < limit:
            scaled = value * 1e3 / limit
            return f"{scaled:.3g}{unit}" if abs(scaled) < 999.5 else f"{scaled:.0f}{unit}"
    return f"{value:.3g}"


def clock(seconds: float) -> str:
    """Return a duration as h:mm:ss."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}"


def interval(low: float, high: float) -> str:
    """Return the ends of an interval as [low, high]."""
    return f"[{measure(low)}, {measure(high)}]"
