"""When a collection ends: after a number of episodes, or at a signal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np

from ding_like.errors import ConfigError
from ding_like.types import Array

# Returns whether a collection ends before its target is reached; asked before each step.
StopRule: TypeAlias = Callable[[], bool]


class Episodes:
    """Rule of a collection of exactly `number` episodes (or games), all begun within it.

    Stopping at the first that *end* would favour short ones: here a lane begins another episode when its own ends, as
    long as some are left to begin, and is idle afterwards. An episode that breaks off is begun again.
    Raises ConfigError for fewer episodes than lanes.
    """

    def __init__(self, number: int, num_lanes: int) -> None:
        if whole_number("n_episode", number) < num_lanes:
            raise ConfigError(
                f"n_episode {number} is fewer than {num_lanes} envs: every env begins one. Raise "
                "policy.collect.n_episode, or lower env.collector_env_num."
            )
        self._left = number - num_lanes
        self._is_idle = np.zeros(num_lanes, bool)
        self._num_idle = 0

    @property
    def is_met(self) -> bool:
        """Whether all episodes have ended."""
        return self._num_idle == len(self._is_idle)

    @property
    def idle(self) -> Array | None:
        """Lanes that take no further step, bool[E]; None if all continue."""
        return self._is_idle if self._num_idle else None

    def note(self, ended_lanes: Sequence[int]) -> None:
        """Count a step at which the episodes of these lanes ended."""
        for lane in ended_lanes:
            if not self._begins_another(lane):
                self._is_idle[lane] = True
                self._num_idle += 1

    def _begins_another(self, lane: int) -> bool:
        self._left -= 1
        return self._left >= 0


class EpisodeQuota(Episodes):
    """Rule of an evaluation of `number` episodes (or games), of which each lane plays its own share."""

    def __init__(self, number: int, num_lanes: int) -> None:
        self._lacking = episode_shares(number, num_lanes)
        super().__init__(number, num_lanes)

    def _begins_another(self, lane: int) -> bool:
        self._lacking[lane] -= 1
        return self._lacking[lane] > 0


class StopSignals:
    """Signals that stop the collections of a round, by keyword; threads may share them.

    A signal counts for its round and for those before it, which a slow collector may still be in; it does not stop a
    later round that has already begun.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: dict[str, int] = {}  # round, by keyword

    def stop(self, round_id: int, keyword: str) -> None:
        """Stop the collections of round `round_id`, and of those before it, that listen to a keyword."""
        round_id = whole_number("round_id", round_id, least=0)
        with self._lock:
            self._newest[keyword] = max(round_id, self._newest.get(keyword, -1))

    def rule(self, listen_to: Iterable[str | tuple[str, int]], round_id: int) -> StopRule | None:
        """Return the rule of a collection that listens to keywords, alone (in round `round_id`) or with a round.

        Returns None if it listens to none.
        """
        named = [(each, round_id) if isinstance(each, str) else each for each in listen_to]
        if not named:
            return None
        return lambda: any(self._newest.get(keyword, -1) >= number for keyword, number in named)


def episode_shares(number: int, num_lanes: int) -> list[int]:
    """Return how many of `number` episodes each lane plays: equally many, the first lanes one more where need be.

    Raises ConfigError if there are fewer episodes than lanes.
    """
    if whole_number("n_episode", number) < num_lanes:
        raise ConfigError(
            f"{number} evaluation episodes for {num_lanes} envs: each env must finish at least one. "
            "Raise env.n_evaluator_episode or lower env.evaluator_env_num."
        )
    each, more = divmod(number, num_lanes)
    return [each + (lane < more) for lane in range(num_lanes)]


def whole_number(name: str, value: object, *, least: int = 1) -> int:
    """Return `value` if it is a whole number of at least `least`. Raises ConfigError if not."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ConfigError(f"{name} is {value!r}; expected a whole number, {least} or more.")
    return int(value)
