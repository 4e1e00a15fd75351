"""Follow how far a run in another process is, by the metrics that it writes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any


class MetricsTail:
    """Read what is new in a run's `metrics.jsonl`, and keep the newest numbers; NaN where there are none yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._begin()

    def _begin(self) -> None:
        self.env_step = 0
        self.train_iter = 0
        self.train_return = math.nan
        self.eval_return = math.nan
        self.best_eval = math.nan

    def read(self) -> None:
        """Take in the whole lines that have come since; a file that is shorter than before is read anew."""
        try:
            with open(self._path, "rb") as file:
                if file.seek(0, 2) < self._offset:
                    self._offset = 0
                    self._begin()
                file.seek(self._offset)
                whole = file.read().rpartition(b"\n")[0]
        except OSError:
            return  # it has not begun
        if not whole:
            return
        self._offset += len(whole) + 1
        for line in whole.splitlines():
            self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            report: dict[str, Any] = json.loads(line)
            env_step, train_iter = int(report.get("env_step", -1)), int(report.get("train_iter", 0))
        except (ValueError, TypeError, AttributeError):
            return  # what is wrong with it says whoever reads the whole file
        if env_step < self.env_step and env_step >= 0 and report.get("source") == "collector":
            self.env_step = env_step  # taken up again from an earlier point
        self.env_step, self.train_iter = max(self.env_step, env_step), max(self.train_iter, train_iter)
        value = report.get("reward_mean")
        if not isinstance(value, (int, float)):
            return
        if report.get("source") == "evaluator":
            self.eval_return = float(value)
            self.best_eval = float(value) if math.isnan(self.best_eval) else max(self.best_eval, float(value))
        elif report.get("source") == "collector":
            self.train_return = float(value)
