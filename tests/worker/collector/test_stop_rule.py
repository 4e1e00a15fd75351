"""Rules of episodes and stop signals: each ends a collection where it should, and wrong input is one clear error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ding_like.errors import ConfigError
from ding_like.worker.collector.loop import RolloutLoop, step_until
from ding_like.worker.collector.stop_rule import EpisodeQuota, Episodes, StopSignals
from tests.worker.scripted_manager import CountingActor, ScriptedManager


def loop_over(lengths: Any, **kwargs: Any) -> tuple[ScriptedManager, RolloutLoop]:
    manager = ScriptedManager([list(mine) for mine in lengths], **kwargs)
    return manager, RolloutLoop(manager, CountingActor(), rng=np.random.default_rng(0))


def ended_of(loop: RolloutLoop, rule: Episodes) -> list[int]:
    return [record.lane for step in step_until(loop, rule, {}) for record in step]


def test_episodes_are_exactly_as_many_as_were_begun_and_short_ones_are_not_preferred() -> None:
    manager, loop = loop_over(((1,), (9,), (4,)))

    ended = ended_of(loop, Episodes(5, 3))

    assert len(ended) == 5 and set(ended) == {0, 1, 2}
    assert len({key[:2] for key in manager.history}) == 5, "no sixth episode was begun"
    assert not loop.is_mid_episode


def test_a_lane_is_idle_only_when_no_episode_is_left_to_begin() -> None:
    rule = Episodes(4, 2)
    seen = []
    for lanes in ([0], [0, 1], [1]):
        seen.append(None if rule.idle is None else rule.idle.tolist())
        rule.note(lanes)

    assert seen == [None, None, [False, True]]
    assert rule.is_met


def test_an_episode_that_breaks_off_is_begun_again() -> None:
    manager, loop = loop_over(((3,), (3,)), drop_at={(1, 0, 2)})

    assert sorted(ended_of(loop, Episodes(2, 2))) == [0, 1] and manager.history[-1] == (1, 1, 2)


def test_a_quota_takes_the_first_episodes_of_each_lane_and_no_further_step() -> None:
    manager, loop = loop_over(((2,), (5,)), delay=2)

    assert sorted(ended_of(loop, EpisodeQuota(3, 2))) == [0, 0, 1]
    assert len(manager.history) == loop.env_steps == 2 + 2 + 5


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
