"""Say what kind of rows a buffer hands out: how old, how often used, how important."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ding_like.types import Array


class SampledDataMonitor:
    """Average a few of the sampled columns over the last `average_range` of every `print_freq` samples."""

    def __init__(self, average_range: int, print_freq: int) -> None:
        self._print_freq = max(int(print_freq), 1)
        self._first = self._print_freq - min(max(int(average_range), 1), self._print_freq)
        self._num_samples = 0
        self._sums: dict[str, float] = {}

    def add(self, columns: Mapping[str, Array]) -> dict[str, float] | None:
        """Look at a sample; return the averages when they are due."""
        if self._num_samples >= self._first:
            for name, value in _attributes(columns):
                self._sums[name] = self._sums.get(name, 0.0) + value
        self._num_samples += 1
        if self._num_samples < self._print_freq:
            return None
        averages = {name: value / (self._print_freq - self._first) for name, value in self._sums.items()}
        self._num_samples, self._sums = 0, {}
        return averages


def _attributes(columns: Mapping[str, Any]) -> list[tuple[str, float]]:
    use, staleness, priority = columns["use"], columns["staleness"], columns["priority"]
    return [
        ("use_avg", float(use.mean())),
        ("use_max", float(use.max())),
        ("staleness_avg", float(staleness.mean())),
        ("staleness_max", float(staleness.max())),
        ("priority_avg", float(priority.mean())),
        ("priority_max", float(priority.max())),
        ("priority_min", float(priority.min())),
    ]
