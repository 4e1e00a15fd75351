"""Say once in a while, in one line, how far a run is."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Progress:
    """Hold what a progress line tells; NaN where there is nothing yet."""

    env_step: int
    train_iter: int
    mean_return: float  # of the last training episodes, with exploration
    last_eval: float  # mean return of the last evaluation
    note: str = ""  # what the policy wants seen, `eps 0.12`


class ProgressLine:
    """Log a line every `every_s` seconds, and at once after an evaluation."""

    def __init__(
        self,
        *,
        max_env_step: float,
        max_train_iter: float,
        every_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit_step = max_env_step
        self._limit_iter = max_train_iter
        self._every_s = every_s
        self._clock = clock
        self._started_s = self._last_s = clock()
        self._last_step = 0

    def start_from(self, env_step: int) -> None:
        """Measure the speed from here on (after a resume)."""
        self._last_step = env_step
        self._last_s = self._clock()

    @property
    def is_due(self) -> bool:
        """Tell whether the next line is due."""
        return self._clock() - self._last_s >= self._every_s

    def show(self, progress: Progress) -> None:
        """Log one line."""
        now = self._clock()
        speed = (progress.env_step - self._last_step) / max(now - self._last_s, 1e-9)
        self._last_s, self._last_step = now, progress.env_step
        parts = [
            f"env step {progress.env_step:,}{_of(self._limit_step)}",
            f"iter {progress.train_iter:,}{_of(self._limit_iter)}",
            f"return {_number(progress.mean_return)}",
            f"eval {_number(progress.last_eval)}",
        ]
        if progress.note:
            parts.append(progress.note)
        parts.append(f"{speed:,.0f} env steps/s")
        logger.info("%s", "  ".join(parts))


def _of(limit: float) -> str:
    """Return '/limit' where a user set one; the default of 1e10 stands for none."""
    return f"/{limit:,.0f}" if limit < 1e9 else ""


def _number(value: float) -> str:
    return "-" if value != value else f"{value:.1f}"
