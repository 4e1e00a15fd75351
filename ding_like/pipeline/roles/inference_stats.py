"""Measure what an inference server does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ding_like.pipeline.roles.batcher import Waiting
from ding_like.utils.latency import LatencyMeter

_STATS_S = 1.0


class InferenceStats:
    """Count what a server does, and report it once a second."""

    def __init__(self) -> None:
        self._latency = LatencyMeter()  # from when a request was received until its answer was sent
        self._totals = {"requests": 0, "observations": 0, "batches": 0}
        self._since = dict(self._totals)
        self._busy_s = 0.0
        self._taken_s = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Tell whether it is time to report."""
        return time.monotonic() - self._taken_s >= _STATS_S

    def note_batch(self, batch: Sequence[Waiting], took_s: float) -> None:
        """Take note of a batch whose forward pass took so long."""
        rows = sum(each.request.rows for each in batch)
        for name, number in (("requests", len(batch)), ("observations", rows), ("batches", 1)):
            self._totals[name] += number
        self._busy_s += took_s

    def note_answer(self, waiting: Waiting) -> None:
        """Take note of a request that was answered just now."""
        self._latency.note(time.monotonic() - waiting.came_s)

    def take(self) -> dict[str, Any]:  # Any: of JSON
        """Return the totals, and what there is to say of the time since this was called last."""
        now = time.monotonic()
        new = {name: total - self._since[name] for name, total in self._totals.items()}
        latency = self._latency.take().plain()
        found = {
            **self._totals,
            "mean_batch": new["observations"] / new["batches"] if new["batches"] else None,
            "p50_ms": latency["p50_ms"],
            "p99_ms": latency["p99_ms"],
            "busy": self._busy_s / (now - self._taken_s),
        }
        self._since, self._busy_s, self._taken_s = dict(self._totals), 0.0, now
        return found
