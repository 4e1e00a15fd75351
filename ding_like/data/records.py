"""Records of episodes, evaluations and collections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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
