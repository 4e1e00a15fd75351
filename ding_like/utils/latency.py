"""Measure how long answers take."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

_KEPT = 10_000  # durations, the last ones


@dataclass(frozen=True)
class Latency:
    """Hold percentiles of how long `count` answers took, in ms; NaN where there were none."""

    count: int
    p50_ms: float
    p99_ms: float

    @classmethod
    def of(cls, durations_s: Sequence[float]) -> Latency:
        """Return the percentiles of durations in seconds."""
        if not len(durations_s):
            return cls(0, math.nan, math.nan)
        p50, p99 = 1000.0 * np.percentile(np.asarray(durations_s), (50, 99))
        return cls(len(durations_s), float(p50), float(p99))

    def plain(self) -> dict[str, float | None]:
        """Return plain JSON: null stands for NaN."""
        return {name: value if value == value else None for name, value in asdict(self).items()}


class LatencyMeter:
    """Keep durations until they are asked for."""

    def __init__(self) -> None:
        self._durations_s: deque[float] = deque(maxlen=_KEPT)

    def note(self, duration_s: float) -> None:
        """Take note of one answer."""
        self._durations_s.append(duration_s)

    def take(self) -> Latency:
        """Return the percentiles since this was called last."""
        found = Latency.of(list(self._durations_s))
        self._durations_s.clear()
        return found
