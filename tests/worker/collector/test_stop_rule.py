"""Rules of episodes and stop signals: each ends a collection where it should, and wrong input is one clear error."""

from __future__ import annotations

import numpy as np
import pytest

from ding_like.errors import ConfigError
from ding_like.worker.collector.loop import EpisodeQuota, Episodes, StopSignals


def test_a_lane_is_idle_only_when_no_episode_is_left_to_begin() -> None:
    rule = Episodes(4, 2)
    seen = []
    for lanes in ([0], [0, 1], [1]):
        seen.append(None if rule.idle is None else rule.idle.tolist())
        rule.note(lanes)

    assert seen == [None, None, [False, True]]
    assert rule.is_met


def test_a_signal_stops_its_round_and_those_before_but_none_after() -> None:
    signals = StopSignals()
    early = signals.rule(["sync"], 5)
    signals.stop(4, "sync")

    rules = [signals.rule(["other", "sync"], round_id) for round_id in (3, 4, 5)]

    assert [rule is not None and rule() for rule in (*rules, early)] == [True, True, False, False]
    assert signals.rule([("sync", 4)], 9)() and signals.rule([], 0) is None  # type: ignore[misc]


def test_numbers_that_are_not_whole_and_positive_are_refused() -> None:
    for value in (0, -1, 2.5, "8", True, None):
        for make in (Episodes, EpisodeQuota):
            with pytest.raises(ConfigError, match="expected a whole number, 1 or more"):
                make(value, 1)  # type: ignore[arg-type]
    for value in (-1, 1.5, None, True):
        with pytest.raises(ConfigError, match=r"round_id is .*expected a whole number, 0 or more"):
            StopSignals().stop(value, "sync")  # type: ignore[arg-type]
    assert not Episodes(np.int64(3), 3).is_met  # type: ignore[arg-type]


def test_fewer_episodes_than_lanes_are_refused_with_a_way_out() -> None:
    with pytest.raises(ConfigError, match=r"n_episode 2 is fewer than 3 envs.*lower env.collector_env_num"):
        Episodes(2, 3)
    with pytest.raises(ConfigError, match=r"2 evaluation episodes for 3 envs.*n_evaluator_episode"):
        EpisodeQuota(2, 3)
