"""Stand for the collectors of other processes: what they took, how they fare, and what a resumed run goes on from."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ding_like.comm.channels import Segment
from ding_like.data.env_metrics import PREFIX, mean_metrics, of_stats
from ding_like.types import Setting, State
from ding_like.utils.interval import Interval
from ding_like.utils.metrics import MetricsSink

_WINDOW_S = 10.0  # rates are those of so long
_METRICS_S = 1.0
_RECENT = 100  # lags and ages that are averaged


@dataclass
class _Fare:
    """Hold what is known of one collector."""

    mean_return: float = math.nan  # of its last episodes
    mean_length: float = math.nan
    metrics: Mapping[str, float] = field(default_factory=dict)  # of its envs
    taken: deque[tuple[float, int, int]] = field(default_factory=deque)  # (when it came, env steps, rows)


class RemoteCollectors:
    """Count what the collectors of other processes take, and measure how old it is when it is learned from.

    `PolicyLag` is the number of updates between the weights that collected rows and the learner's when these are put;
    `data_age_s` is how long they were on their way. Once a second the means go into the metrics.
    """

    def __init__(self, metrics: MetricsSink | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.envstep = 0
        self.setting: Setting = {}  # what a collector was told last
        self.dropped_rows = 0  # that were too old
        self.beside: Callable[[], Mapping[str, float]] = dict  # what else goes into the metrics with the rates
        self._metrics = metrics
        self._clock = clock
        self._fares: dict[str, _Fare] = {}
        self._lags: deque[float] = deque(maxlen=_RECENT)
        self._ages_s: deque[float] = deque(maxlen=_RECENT)
        self._rounds_s: deque[float] = deque(maxlen=_RECENT)
        self._metrics_due = Interval(_METRICS_S)

    # --- taking note

    def note(self, worker: str, segment: Segment) -> None:
        """Take note of a segment that a collector returned."""
        fare = self._fares.setdefault(worker, _Fare())
        setting = dict(segment.stats)
        mean_return, mean_length = setting.pop("return", None), setting.pop("length", None)
        fare.mean_return = fare.mean_return if mean_return is None else float(mean_return)
        fare.mean_length = fare.mean_length if mean_length is None else float(mean_length)
        fare.metrics = of_stats(setting) or fare.metrics
        fare.taken.append((self._clock(), segment.env_steps, len(segment.batch)))
        while len(fare.taken) > 2 and fare.taken[-1][0] - fare.taken[1][0] >= _WINDOW_S:
            fare.taken.popleft()
        self.setting = {name: value for name, value in setting.items() if not name.startswith(PREFIX)}

    def note_put(
        self, *, train_iter: int, version: int, came_s: float | None = None, age_s: float | None = None
    ) -> None:
        """Take note of rows that were put, collected by the weights of `version`.

        They came at `came_s`, or, put by another process, are `age_s` old.
        """
        self._lags.append(train_iter - version)
        self._ages_s.append(self._clock() - (came_s or 0.0) if age_s is None else age_s)
        if self._metrics is not None and self._metrics_due.pass_s():
            self._metrics.write("collector", self._numbers(), env_step=self.envstep, train_iter=train_iter)

    def note_round(self, duration_s: float) -> None:
        """Take note of how long a synchronous round took."""
        self._rounds_s.append(duration_s)

    def keep(self, workers: Collection[str]) -> None:
        """Forget collectors that are no longer there."""
        self._fares = {name: fare for name, fare in self._fares.items() if name in workers}

    # --- what there is to say

    @property
    def mean_return(self) -> float:
        """Return the mean over collectors of what their last episodes returned; NaN before the first."""
        return _mean(fare.mean_return for fare in self._fares.values())

    @property
    def mean_length(self) -> float:
        """Return the mean over collectors of the lengths of their last episodes, in env steps."""
        return _mean(fare.mean_length for fare in self._fares.values())

    @property
    def mean_metrics(self) -> dict[str, float]:
        """Return the means over collectors of the envs' own metrics."""
        return mean_metrics(fare.metrics for fare in self._fares.values())

    def rates(self) -> dict[str, tuple[float, float]]:
        """Return env steps and rows per second by collector, over the last ten seconds."""
        return {name: _rates(fare) for name, fare in self._fares.items()}

    def describe(self) -> dict[str, str]:
        """Return the rows of a run's panel."""
        rates = self.rates()
        said = {"collectors": str(len(rates)), "policy lag": f"{_mean(self._lags):.3g} updates"}
        said["data age"] = f"{1000 * _mean(self._ages_s):.3g} ms"
        if self._rounds_s:
            said["round"] = f"{1000 * _mean(self._rounds_s):.3g} ms"
        if self.dropped_rows:
            said["rows too old"] = f"{self.dropped_rows:,}"
        return {**said, **{name: f"{steps:,.0f} env steps/s" for name, (steps, _) in rates.items()}}

    def _numbers(self) -> dict[str, float]:
        steps, rows = zip(*self.rates().values(), strict=True) if self._fares else ((), ())
        numbers = {
            "reward_mean": self.mean_return,
            "avg_envstep_per_episode": self.mean_length,
            **self.mean_metrics,
            "PolicyLag": _mean(self._lags),
            "data_age_s": _mean(self._ages_s),
            "round_s": _mean(self._rounds_s),
            "envstep_per_sec": sum(steps),
            "rows_per_sec": sum(rows),
            "dropped_rows": float(self.dropped_rows),
            **self.beside(),
            **{name: float(value) for name, value in self.setting.items() if isinstance(value, (int, float))},
        }
        return {name: value for name, value in numbers.items() if not math.isnan(value)}

    # --- what a run asks of its collector

    def state_dict(self) -> State:
        """Return the counts; the collectors' open episodes begin anew in a run that goes on."""
        return {"envstep": self.envstep, "dropped_rows": self.dropped_rows}

    def load_state_dict(self, state: State) -> None:
        """Go on from what `state_dict` returned."""
        self.envstep, self.dropped_rows = state["envstep"], state["dropped_rows"]

    def close(self) -> None:
        """Do nothing: the collectors are ended by those who started them."""


def _mean(values: Any) -> float:  # Any: an iterable of numbers, some of which may be NaN
    finite = [value for value in values if value == value]
    return sum(finite) / len(finite) if finite else math.nan


def _rates(fare: _Fare) -> tuple[float, float]:
    """Return env steps and rows per second between the first and the last that came."""
    if len(fare.taken) < 2:
        return 0.0, 0.0
    seconds = max(fare.taken[-1][0] - fare.taken[0][0], 1e-9)
    later = list(fare.taken)[1:]
    return sum(steps for _, steps, _ in later) / seconds, sum(rows for _, _, rows in later) / seconds
