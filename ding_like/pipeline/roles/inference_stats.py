"""Measure what an inference server does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ding_like.pipeline.roles.batcher import Waiting
from ding_like.utils.latency import LatencyMeter

_STATS_S = 1.0


class InferenceStats:
    """Counts of a server's work, reported once a second."""

    def __init__(self) -> None:
        self.num_garbled = 0  # requests that could not be read
        self._latency = LatencyMeter()  # from when a request was received until its answer was sent
        self._totals = {"requests": 0, "observations": 0, "batches": 0}
        self._since = dict(self._totals)
        self._busy_s = 0.0
        self._taken_s = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether it is time to report."""
        return time.monotonic() - self._taken_s >= _STATS_S

    def note(self, batch: Sequence[Waiting], took_s: float) -> None:
        """Count a batch that was answered just now, whose forward pass took so long."""
        rows, now_s = sum(each.request.rows for each in batch), time.monotonic()
        for name, number in (("requests", len(batch)), ("observations", rows), ("batches", 1)):
            self._totals[name] += number
        self._busy_s += took_s
        for each in batch:
            self._latency.note(now_s - each.came_s)

    def take(self) -> dict[str, Any]:  # Any: of JSON
        """Return the totals, and the rates since the last call."""
        now_s = time.monotonic()
        new = {name: total - self._since[name] for name, total in self._totals.items()}
        latency = self._latency.take().plain()
        found = {
            **self._totals,
            "mean_batch": new["observations"] / new["batches"] if new["batches"] else None,
            "p50_ms": latency["p50_ms"],
            "p99_ms": latency["p99_ms"],
            "busy": self._busy_s / (now_s - self._taken_s),
            "garbled": self.num_garbled,
        }
        self._since, self._busy_s, self._taken_s = dict(self._totals), 0.0, now_s
        return found
