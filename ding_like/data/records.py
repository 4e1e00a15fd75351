"""Records of episodes, evaluations and collections, and metrics of an env beside the return.

A metric of an env is a number by name in `info` at an episode's end.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ding_like.data.team import RETURN_OF
from ding_like.errors import ConfigError

logger = logging.getLogger(__name__)

# Reported for every env whose `info` has it, as that of gymnasium-robotics.
ALWAYS = ("is_success",)
# Of a worker's numbers those that are metrics of its envs.
PREFIX = "env/"
_SHOWN_AGENTS = 8
# What lines of metrics.jsonl and the reports of collectors and evaluators have already.
_TAKEN = frozenset(
    ("source", "env_step", "train_iter", "time_s", "reward_mean", "reward_std", "reward_max", "reward_min")
    + ("episode_count", "envstep_count", "train_sample_count", "avg_envstep_per_episode", "avg_sample_per_episode")
    + ("avg_envstep_per_sec", "avg_train_sample_per_sec", "avg_episode_per_sec", "total_envstep_count")
    + ("total_train_sample_count", "total_episode_count", "total_dropped_episode_count", "evaluate_time")
    + ("avg_time_per_episode", "return", "length")
)


@dataclass(frozen=True)
class EpisodeRecord:
    """Finished episode of one lane."""

    lane: int
    return_: float  # undiscounted sum of rewards, or the env's own info['eval_episode_return']
    length: int  # env steps
    info: Mapping[str, Any] = field(default_factory=dict)  # the env's info['episode_info'], scalars by name
    metrics: Mapping[str, float] = field(default_factory=dict)  # what the env measures beside the return
    env_info: Mapping[str, Any] = field(default_factory=dict)  # the env's whole `info` of the last step

    @property
    def final_info(self) -> dict[str, object]:
        """The env's `info` of the last step, with the return as `eval_episode_return`."""
        return {**self.env_info, "eval_episode_return": self.return_}


@dataclass(frozen=True)
class EvalResult:
    """Evaluation: the first `n` finished episodes of each lane."""

    returns: list[float]
    lengths: list[int]
    info: Mapping[str, Any]  # lists by name, and `<name>_mean` for numbers
    env_steps: int
    duration_s: float
    metrics: Mapping[str, float] = field(default_factory=dict)  # of the env, means over episodes

    @property
    def mean(self) -> float:
        """Mean return over episodes."""
        return sum(self.returns) / len(self.returns)


@dataclass
class CollectStats:
    """Counts of one collector since it was made."""

    env_steps: int = 0
    episodes: int = 0
    train_samples: int = 0
    dropped_steps: int = 0  # env steps of episodes that broke off, and on-policy surplus
    dropped_episodes: int = 0


class EpisodeMetrics:
    """Reader of the metrics of episodes from `info` at their last step; warns once of a name that is not there.

    A metric is a bool, a number, or an array of one; it may also lie in `info["episode_info"]`. There a team names each
    agent's return, `return_NAME`: they are metrics without being asked for, of many agents the lowest and the highest.
    """

    def __init__(self, names: Sequence[str] = ALWAYS) -> None:
        self._names = tuple(names)
        self._asked = [name for name in names if name not in ALWAYS]
        self._is_checked = not self._asked

    def of(self, info: Mapping[str, object]) -> dict[str, float]:
        """Return the metrics of an episode whose last `info` this is; those that are no finite number are left out."""
        inner = info.get("episode_info")
        found: dict[str, float] = {}
        for name in self._names:
            value = info.get(name)
            if value is None and isinstance(inner, Mapping):
                value = inner.get(name)
            number = _number(value)
            if number is not None:
                found[name] = number
        found.update(returns_by_agent(inner if isinstance(inner, Mapping) else {}))
        if not self._is_checked:
            self._check(found, info, inner if isinstance(inner, Mapping) else {})
        return found

    def _check(self, found: Mapping[str, float], info: Mapping[str, object], inner: Mapping[str, object]) -> None:
        self._is_checked = True
        missing = [name for name in self._asked if name not in found]
        if missing:
            has = sorted(
                name for source in (info, inner) for name, value in source.items() if _number(value) is not None
            )
            logger.warning(
                "env.metrics names %s, which info does not hold as a number at an episode's end; the numbers there: %s",
                ", ".join(map(repr, missing)),
                ", ".join(has) or "none",
            )


def returns_by_agent(inner: Mapping[str, object]) -> dict[str, float]:
    """Return what agents of a team were paid in an episode: each by name, of many the lowest and the highest."""
    returns = {name: _number(value) for name, value in inner.items() if str(name).startswith(RETURN_OF)}
    own = {name: value for name, value in returns.items() if value is not None}
    if len(own) <= _SHOWN_AGENTS:
        return own
    return {f"{RETURN_OF}lowest": min(own.values()), f"{RETURN_OF}highest": max(own.values())}


def metric_names(asked: Sequence[str]) -> tuple[str, ...]:
    """Return the names of an env's metrics: those that are always reported, then the config's `env.metrics`.

    Raises ConfigError for what is no name, and for one that reports have already.
    """
    for name in asked:
        if not isinstance(name, str) or not name:
            raise ConfigError(
                f"env.metrics holds {name!r}; give names of numbers in info, as in env.metrics=['distance']."
            )
        if name in _TAKEN:
            raise ConfigError(
                f"env.metrics names '{name}', which every report has already; let the env say it under another name."
            )
    return tuple(dict.fromkeys((*ALWAYS, *asked)))


def mean_metrics(episodes: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each metric over the episodes that have it."""
    values: dict[str, list[float]] = {}
    for episode in episodes:
        for name, value in episode.items():
            values.setdefault(name, []).append(value)
    return {name: sum(each) / len(each) for name, each in values.items()}


def as_stats(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return metrics by the names that they have among the numbers of a worker."""
    return {PREFIX + name: value for name, value in metrics.items()}


def of_stats(stats: Mapping[str, object]) -> dict[str, float]:
    """Return the metrics among the numbers of a worker, by their own names."""
    return {
        name.removeprefix(PREFIX): float(value)
        for name, value in stats.items()
        if name.startswith(PREFIX) and isinstance(value, (int, float))
    }


def _number(value: object) -> float | None:
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(()).item()
    if not isinstance(value, (bool, int, float, np.number, np.bool_)) or isinstance(value, np.complexfloating):
        return None
    number = float(value)
    return number if math.isfinite(number) else None
