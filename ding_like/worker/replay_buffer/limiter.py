"""Keep what is pushed and what is sampled in proportion."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from ding_like.errors import ConfigError
from ding_like.types import State

_LEFT_AFTER_WINDOW = 0.01
_SLACK = 0.1  # rows: what is asked for has not faded yet, so that what is exactly at a limit would not pass


class RateLimiter:
    """Hold the number of pushed rows per sampled row between `min_ratio` and `max_ratio`.

    What is asked for counts as if it had passed, so that no push or sample goes beyond the limits by itself. Counts
    fade to 1 % in `window_s`, computed whenever they are looked at: only the recent past matters. Before the first
    sample everything may pass.
    """

    def __init__(
        self, min_ratio: float, max_ratio: float, window_s: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if not 0 <= min_ratio <= max_ratio:
            raise ConfigError(
                f"push_sample_rate_limit has min {min_ratio} and max {max_ratio}, expected 0 <= min <= max."
            )
        if not window_s > 0:
            raise ConfigError(f"thruput_controller.window_seconds is {window_s}, expected more than 0.")
        self._min_ratio = min_ratio
        self._max_ratio = max_ratio
        self._window_s = window_s
        self._clock = clock
        self.clear()

    @classmethod
    def from_cfg(cls, cfg: Mapping[str, Any]) -> RateLimiter | None:
        """Return the limiter that `thruput_controller` describes; None if it limits nothing."""
        limit = cfg["push_sample_rate_limit"]
        limiter = cls(limit["min"], limit["max"], cfg["window_seconds"])
        return None if limit["min"] == 0 and limit["max"] == float("inf") else limiter

    def may_push(self, rows: int = 1) -> bool:
        """Say whether pushed rows per sampled row will be at most the maximum with these rows.

        They may pass anyway while there are too few for a sample of the last size: else limits that lie closer together
        than one push and one sample would stop both for good.
        """
        self._fade()
        is_below = self._pushed + rows <= self._max_ratio * self._sampled + _SLACK
        return self._sampled == 0 or is_below or not self._is_enough_for(self._last_size)

    def may_sample(self, rows: int = 1) -> bool:
        """Say whether pushed rows per sampled row will be at least the minimum with a sample of `rows`."""
        self._fade()
        self._last_size = rows
        return self._sampled == 0 or self._is_enough_for(rows)

    def _is_enough_for(self, rows: int) -> bool:
        return self._pushed + _SLACK >= self._min_ratio * (self._sampled + rows)

    def add(self, *, pushed: int = 0, sampled: int = 0) -> None:
        """Count rows."""
        self._fade()
        self._pushed += pushed
        self._sampled += sampled

    def clear(self) -> None:
        """Forget what has passed."""
        self._pushed = self._sampled = 0.0
        self._since = self._clock()
        self._last_size = 1  # of the samples that were asked for

    def state_dict(self) -> State:
        """Return what is left of the counts by now."""
        self._fade()
        return {"pushed": self._pushed, "sampled": self._sampled}

    def load_state_dict(self, state: State) -> None:
        """Go on from saved counts; the time since then does not count, as clocks differ between processes."""
        self.clear()
        self._pushed, self._sampled = float(state["pushed"]), float(state["sampled"])

    def __str__(self) -> str:
        return (
            f"lately {self._pushed:.1f} rows pushed for {self._sampled:.1f} sampled, "
            f"the ratio shall be from {self._min_ratio:g} to {self._max_ratio:g}"
        )

    def _fade(self) -> None:
        now = self._clock()
        left = _LEFT_AFTER_WINDOW ** ((now - self._since) / self._window_s)
        self._since = now
        self._pushed *= left
        self._sampled *= left
