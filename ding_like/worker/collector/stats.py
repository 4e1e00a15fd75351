"""Count what a collector did and say it once in a while."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np

from ding_like.data.env_metrics import mean_metrics
from ding_like.data.records import CollectStats, EpisodeRecord
from ding_like.types import State

# Episodes that the means on the console are over.
_RECENT = 100


class CollectReport:
    """Gather episodes and durations between two log lines; the keys of a report are DI-engine's."""

    def __init__(self) -> None:
        self.total = CollectStats()
        self.recent_returns: deque[float] = deque(maxlen=_RECENT)
        self.recent_lengths: deque[int] = deque(maxlen=_RECENT)
        self.recent_metrics: deque[Mapping[str, float]] = deque(maxlen=_RECENT)  # of episodes that have some
        self._clear()

    def _clear(self) -> None:
        self._returns: list[float] = []
        self._metrics: list[Mapping[str, float]] = []
        self._env_steps = 0
        self._samples = 0
        self._duration_s = 0.0
        self._episode_steps = 0

    def add(self, episodes: list[EpisodeRecord], *, env_steps: int, samples: int, duration_s: float) -> None:
        """Count one `collect` call."""
        returns = [episode.return_ for episode in episodes]
        self._returns += returns
        self.recent_returns.extend(returns)
        self.recent_lengths.extend(episode.length for episode in episodes)
        metrics = [episode.metrics for episode in episodes if episode.metrics]
        self._metrics += metrics
        self.recent_metrics.extend(metrics)
        self._episode_steps += sum(episode.length for episode in episodes)
        self._env_steps += env_steps
        self._samples += samples
        self._duration_s += duration_s
        self.total.env_steps += env_steps
        self.total.train_samples += samples
        self.total.episodes += len(episodes)

    def forget(self) -> None:
        """Start a new interval without a report (the totals stay)."""
        self._clear()

    @property
    def has_episodes(self) -> bool:
        """Tell whether an episode ended since the last report."""
        return bool(self._returns)

    def take(self) -> Mapping[str, float]:
        """Return the interval's numbers and begin a new one; needs `has_episodes`."""
        returns = np.array(self._returns)
        episodes = len(returns)
        # A clock tick of 0 on a very short interval must not divide.
        duration = max(self._duration_s, 1e-9)
        report = {
            "episode_count": episodes,
            "envstep_count": self._env_steps,
            "train_sample_count": self._samples,
            "avg_envstep_per_episode": self._episode_steps / episodes,
            "avg_sample_per_episode": self._samples / episodes,
            "avg_envstep_per_sec": self._env_steps / duration,
            "avg_train_sample_per_sec": self._samples / duration,
            "avg_episode_per_sec": episodes / duration,
            "reward_mean": float(returns.mean()),
            "reward_std": float(returns.std()),
            "reward_max": float(returns.max()),
            "reward_min": float(returns.min()),
            **mean_metrics(self._metrics),
            "total_envstep_count": self.total.env_steps,
            "total_train_sample_count": self.total.train_samples,
            "total_episode_count": self.total.episodes,
            "total_dropped_episode_count": self.total.dropped_episodes,
        }
        self._clear()
        return report

    def state_dict(self) -> State:
        """Return totals and the open interval, for an exact resume."""
        return {
            "total": vars(self.total).copy(),
            "returns": list(self._returns),
            "metrics": [dict(each) for each in self._metrics],
            "recent": [list(self.recent_returns), list(self.recent_lengths)],
            "recent_metrics": [dict(each) for each in self.recent_metrics],
            "open": [self._env_steps, self._samples, self._episode_steps],
            "duration_s": self._duration_s,
        }

    def load_state_dict(self, state: State) -> None:
        """Take over what `state_dict` returned."""
        self.total = CollectStats(**state["total"])
        self._returns = list(state["returns"])
        self._metrics = list(state.get("metrics", ()))  # points of earlier versions have none
        self.recent_metrics = deque(state.get("recent_metrics", ()), maxlen=_RECENT)
        returns, lengths = state["recent"]
        self.recent_returns, self.recent_lengths = deque(returns, maxlen=_RECENT), deque(lengths, maxlen=_RECENT)
        self._env_steps, self._samples, self._episode_steps = state["open"]
        self._duration_s = state["duration_s"]


def describe(report: Mapping[str, object]) -> str:
    """Return a report as one line for the text log."""
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in report.items()
    )
