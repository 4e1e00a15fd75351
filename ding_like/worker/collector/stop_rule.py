"""Say when a collection is over: after so many rows, steps or episodes, at a signal, or several of these together."""

from __future__ import annotations

import operator
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ding_like.errors import ConfigError
from ding_like.types import Array


class StopRule(ABC):
    """Say when one collection is over, and which lanes stand still until it is.

    A loop asks for `is_met` before each step, steps the lanes that are not `idle`, and tells `note` what ended.
    `a | b` is met as soon as one of the two is, `a & b` when both are.
    """

    # True: the rule may let lanes stand still.
    can_idle = False

    @property
    @abstractmethod
    def is_met(self) -> bool:
        """Tell whether no further step is wanted."""

    @property
    def idle(self) -> Array | None:
        """Return bool[E], the lanes that take no further step; None: all go on."""
        return None

    def note(self, ended_lanes: Sequence[int]) -> None:  # noqa: B027  # most rules have nothing to count
        """Take note of a step at which the episodes of these lanes ended; of several players, the games."""

    def __or__(self, other: StopRule) -> StopRule:
        return _Either(self, other)

    def __and__(self, other: StopRule) -> StopRule:
        return _Both(self, other)


class _Either(StopRule):
    """Stop as soon as one of two rules is met. Raises ConfigError if both let lanes stand still."""

    def __init__(self, first: StopRule, second: StopRule) -> None:
        if first.can_idle and second.can_idle:
            # Each would wait for lanes that the other one stopped.
            raise ConfigError(
                f"{type(first).__name__} | {type(second).__name__}: both let lanes stand still, and a collection could "
                "then stand still as a whole. Combine rules that count episodes with rows, time or signals."
            )
        self._rules = (first, second)
        self.can_idle = first.can_idle or second.can_idle

    @property
    def is_met(self) -> bool:
        first, second = self._rules
        return first.is_met or second.is_met

    @property
    def idle(self) -> Array | None:
        first, second = self._rules
        return first.idle if first.can_idle else second.idle

    def note(self, ended_lanes: Sequence[int]) -> None:
        for rule in self._rules:
            rule.note(ended_lanes)


class _Both(StopRule):
    """Stop when both of two rules are met; a lane stands still only as long as no rule needs it."""

    def __init__(self, first: StopRule, second: StopRule) -> None:
        self._rules = (first, second)
        self.can_idle = first.can_idle or second.can_idle

    @property
    def is_met(self) -> bool:
        first, second = self._rules
        return first.is_met and second.is_met

    @property
    def idle(self) -> Array | None:
        idle = [rule.idle for rule in self._rules if not rule.is_met]
        if not idle or idle[0] is None or idle[-1] is None:
            return None
        both: Array = idle[0] & idle[-1]
        return both

    def note(self, ended_lanes: Sequence[int]) -> None:
        for rule in self._rules:
            rule.note(ended_lanes)


class Rows(StopRule):
    """Stop at `target` training rows; `count` returns how many there are after a step, `have` were there before."""

    def __init__(self, target: int, count: Callable[[], int], *, have: int = 0) -> None:
        self._target = whole_number("n_sample", target)
        self._count = count
        self._have = have

    @property
    def is_met(self) -> bool:
        return self._have >= self._target

    def note(self, ended_lanes: Sequence[int]) -> None:
        self._have = self._count()


class EnvSteps(StopRule):
    """Stop when so many env steps were taken since the rule was made; `count` returns those taken so far."""

    def __init__(self, limit: int, count: Callable[[], int]) -> None:
        self._last = count() + whole_number("a limit of env steps", limit)
        self._count = count

    @property
    def is_met(self) -> bool:
        return self._count() >= self._last


class Episodes(StopRule):
    """Stop when exactly `number` episodes (or games) that began within the collection have ended.

    Stopping at the first that *end* would favour short ones: here each of the lanes takes another episode when its own
    ends, as long as some are left to begin, and then stands still. One that breaks off is begun again.
    Raises ConfigError for fewer episodes than lanes.
    """

    can_idle = True

    def __init__(self, number: int, num_lanes: int) -> None:
        if whole_number("n_episode", number) < num_lanes:
            raise ConfigError(
                f"n_episode {number} is fewer than {num_lanes} envs: every env begins one. Raise "
                "policy.collect.n_episode, or lower env.collector_env_num."
            )
        self._running = number  # episodes that are to end
        self._left = number - num_lanes  # episodes that are to begin
        self._idle = np.zeros(num_lanes, bool)

    @property
    def is_met(self) -> bool:
        return self._running <= 0

    @property
    def idle(self) -> Array | None:
        return None if self._left else self._idle

    def note(self, ended_lanes: Sequence[int]) -> None:
        for lane in ended_lanes:
            self._running -= 1
            if self._left:
                self._left -= 1
            else:
                self._idle[lane] = True


class EpisodeQuota(StopRule):
    """Stop when each lane has ended its share of `number` episodes (or games), and stand still where it has."""

    can_idle = True

    def __init__(self, number: int, num_lanes: int) -> None:
        self._lacking = episode_shares(number, num_lanes)
        self._running = num_lanes
        self._idle = np.zeros(num_lanes, bool)

    @property
    def is_met(self) -> bool:
        return self._running == 0

    @property
    def idle(self) -> Array | None:
        return None if self._running == len(self._idle) else self._idle

    def note(self, ended_lanes: Sequence[int]) -> None:
        for lane in ended_lanes:
            self._lacking[lane] -= 1
            if self._lacking[lane] == 0:
                self._running -= 1
                self._idle[lane] = True


class RoundSignal:
    """Stop the collections of a round, from any thread.

    A signal holds for its round and for those before it, which a slow collector may still be in; a signal that comes
    late, when a later round has begun, does not stop that one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest = -1

    @property
    def newest(self) -> int:
        """Return the last round that is to stop, -1 before the first signal."""
        return self._newest

    def stop(self, round_id: int) -> None:
        """Stop the collections of round `round_id` and of those before it."""
        round_id = whole_number("round_id", round_id, least=0)
        with self._lock:
            self._newest = max(self._newest, round_id)

    def rule(self, round_id: int) -> StopRule:
        """Return the rule of a collection in round `round_id`."""
        return _Signalled(self, whole_number("round_id", round_id, least=0))


class StopSignals:
    """Keep a RoundSignal for each keyword that collections may be told to stop by; threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_keyword: dict[str, RoundSignal] = {}

    def stop(self, round_id: int, keyword: str) -> None:
        """Stop the collections of round `round_id`, and of those before it, that listen to a keyword."""
        self._of(keyword).stop(round_id)

    def rules(self, listen_to: Iterable[str | tuple[str, int]], round_id: int) -> list[StopRule]:
        """Return the rules of a collection that listens to keywords, alone (in round `round_id`) or with a round."""
        named = ((each, round_id) if isinstance(each, str) else each for each in listen_to)
        return [self._of(keyword).rule(number) for keyword, number in named]

    def _of(self, keyword: str) -> RoundSignal:
        with self._lock:
            return self._by_keyword.setdefault(keyword, RoundSignal())


class _Signalled(StopRule):
    """Stop at the signal of a round."""

    def __init__(self, signal: RoundSignal, round_id: int) -> None:
        self._signal = signal
        self._round_id = round_id

    @property
    def is_met(self) -> bool:
        return self._signal.newest >= self._round_id


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
    if type(value) is int and value >= least:  # as a rule, and looked at in every collection
        return value
    try:
        number = least - 1 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    if number < least:
        raise ConfigError(f"{name} is {value!r}; expected a whole number, {least} or more.")
    return number
