"""Flow of data through a buffer: limits on its rates, sums for the log, and files of rows that leave."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from ding_like.errors import ConfigError, SchemaError
from ding_like.types import Config, State
from ding_like.utils.timing import Interval
from ding_like.worker.replay_buffer.storage import Rows

_LEFT_AFTER_WINDOW = 0.01
_SLACK = 0.1  # rows: those of a request have not faded yet, and would not pass exactly at a limit


class RateLimiter:
    """Limit on the number of pushed rows per sampled row: from `min_ratio` to `max_ratio`.

    The rows of a request count as if they had passed, so that no push or sample goes beyond the limits by itself.
    Counts fade to 1 % in `window_s`: only the recent past matters. Before the first sample everything may pass.
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
    def from_cfg(cls, cfg: Config) -> RateLimiter | None:
        """Return the limiter that `thruput_controller` describes; None if it limits nothing."""
        limit = cfg["push_sample_rate_limit"]
        limiter = cls(limit["min"], limit["max"], cfg["window_seconds"])
        return None if limit["min"] == 0 and limit["max"] == float("inf") else limiter

    def may_push(self, rows: int = 1) -> bool:
        """Return whether pushed rows per sampled row will be at most the maximum with these rows.

        They may pass anyway while there are too few for a sample of the last size: otherwise limits that lie closer
        together than one push and one sample would stop both for good.
        """
        self._fade()
        is_below = self._pushed + rows <= self._max_ratio * self._sampled + _SLACK
        return self._sampled == 0 or is_below or not self._is_enough_for(self._last_size)

    def may_sample(self, rows: int = 1) -> bool:
        """Return whether pushed rows per sampled row will be at least the minimum with a sample of `rows`."""
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
        """Reset the counts."""
        self._pushed = self._sampled = 0.0
        self._since = self._clock()
        self._last_size = 1  # of the samples that were asked for

    def state_dict(self) -> State:
        """Return the counts, faded until now."""
        self._fade()
        return {"pushed": self._pushed, "sampled": self._sampled}

    def load_state_dict(self, state: State) -> None:
        """Restore saved counts; the time since then does not count, as clocks differ between processes."""
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


class ThroughputMeter:
    """Sums of rows over windows of at least `seconds`."""

    def __init__(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = Interval(seconds, clock=clock)
        self._sums = {"pushed_in": 0.0, "sampled_out": 0.0, "removed": 0.0}

    def add(self, **rows: int) -> dict[str, float] | None:
        """Count `pushed_in`, `sampled_out` or `removed` rows; return sums and length of the window once it is over."""
        for name, number in rows.items():
            self._sums[name] += number
        passed_s = self._interval.pass_s()
        if not passed_s:
            return None
        sums = {**self._sums, "window_s": passed_s}
        self._sums = dict.fromkeys(self._sums, 0.0)
        return sums


class UsedDataRemover:
    """Files of the rows of a buffer, which are deleted when their rows are overwritten or cleared."""

    def __init__(self, capacity: int, logger: logging.Logger) -> None:
        self._capacity = capacity
        self._logger = logger
        self._paths: deque[str] = deque()  # of the rows in the buffer, oldest first

    @staticmethod
    def paths_of(data: Rows) -> list[str]:
        """Return the file of each datum. Raises SchemaError for one that is not a dict with a 'data_id'."""
        for item in data:
            if not isinstance(item, Mapping) or "data_id" not in item:
                raise SchemaError(
                    f"enable_track_used_data needs dicts with 'data_id' (the path of a file), got {item!r}. "
                    "Push such dicts, or switch the tracking off."
                )
        return [item["data_id"] for item in data]

    def add(self, paths: Iterable[str]) -> None:
        """Add the files of rows that were pushed, and delete those of rows that they overwrote."""
        self._paths.extend(paths)
        while len(self._paths) > self._capacity:
            self._delete(self._paths.popleft())

    def clear(self) -> None:
        """Delete the files of all rows."""
        while self._paths:
            self._delete(self._paths.popleft())

    def forget(self) -> None:
        """Stop tracking all files, without deleting them."""
        self._paths.clear()

    def _delete(self, path: str) -> None:
        try:
            os.remove(path)
        except FileNotFoundError:
            pass  # it was deleted by another process
        except OSError as error:
            self._logger.warning("used data %s cannot be deleted: %s", path, error)
