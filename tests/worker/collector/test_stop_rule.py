"""Stop rules: each stops where it says, alone and combined, and wrong input is one clear error."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from ding_like.errors import ConfigError
from ding_like.worker.collector.loop import RolloutLoop, step_until
from ding_like.worker.collector.stop_rule import (
    EnvSteps,
    EpisodeQuota,
    Episodes,
    RoundSignal,
    Rows,
    StopRule,
)
from tests.worker.scripted_manager import CountingActor, ScriptedManager


def loop_over(lengths: Any = ((9,), (9,)), **kwargs: Any) -> tuple[ScriptedManager, RolloutLoop]:
    manager = ScriptedManager([list(mine) for mine in lengths], **kwargs)
    return manager, RolloutLoop(manager, CountingActor(), rng=np.random.default_rng(0))


def steps_of(rule: StopRule, loop: RolloutLoop) -> int:
    """Run a loop to the rule's end; return how many steps it took."""
    return sum(1 for _ in step_until(loop, rule, {}))


class After(StopRule):
    """Rule that is met after so many steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps
        self.noted: list[list[int]] = []

    @property
    def is_met(self) -> bool:
        return self.left <= 0

    def note(self, ended_lanes: Any) -> None:
        self.left -= 1
        self.noted.append(list(ended_lanes))


# --- the loop


def test_a_rule_that_is_met_already_takes_no_step() -> None:
    manager, loop = loop_over()

    assert steps_of(After(0), loop) == 0
    assert manager.history == []


def test_the_loop_yields_what_each_step_ended_and_tells_the_rule_in_which_lanes() -> None:
    _, loop = loop_over(((2,), (3,)))
    rule = After(3)

    ended = [[(record.lane, record.length) for record in step] for step in step_until(loop, rule, {})]

    assert ended == [[], [(0, 2)], [(1, 3)]]
    assert rule.noted == [[], [0], [1]]


def test_a_lane_that_broke_off_is_not_among_those_that_ended() -> None:
    _, loop = loop_over(((2,), (2,)), drop_at={(1, 0, 1)})
    rule = After(2)

    steps_of(rule, loop)

    assert rule.noted == [[], [0]]


# --- rows and env steps


def test_rows_stop_at_the_first_step_that_has_enough_with_those_that_were_there() -> None:
    for target, steps in ((1, 1), (2, 1), (3, 2), (8, 4)):
        _, loop = loop_over()
        assert steps_of(Rows(target, lambda loop=loop: len(loop.rollout)), loop) == steps  # type: ignore[misc]

    _, loop = loop_over()
    assert steps_of(Rows(4, lambda: 4, have=4), loop) == 0
    assert steps_of(Rows(4, lambda: 4, have=3), loop) == 1


def test_env_steps_are_counted_from_when_the_rule_was_made() -> None:
    _, loop = loop_over()
    steps_of(After(3), loop)

    taken = steps_of(EnvSteps(5, lambda: loop.env_steps), loop)

    assert taken == 3 and loop.env_steps == 12


# --- episodes


def test_episodes_are_exactly_as_many_as_were_begun_and_short_ones_are_not_preferred() -> None:
    manager, loop = loop_over(((1,), (9,), (4,)))

    ended = [record.lane for step in step_until(loop, Episodes(5, 3), {}) for record in step]

    assert len(ended) == 5 and set(ended) == {0, 1, 2}
    assert len({key[:2] for key in manager.history}) == 5, "no sixth episode was begun"
    assert not loop.is_mid_episode


def test_a_lane_stands_still_only_when_no_episode_is_left_to_begin() -> None:
    rule = Episodes(4, 2)
    seen = []
    for lanes in ([0], [0, 1], [1]):
        seen.append(None if rule.idle is None else rule.idle.tolist())
        rule.note(lanes)

    assert seen == [None, None, [False, True]]
    assert rule.is_met


def test_an_episode_that_breaks_off_is_begun_again() -> None:
    manager, loop = loop_over(((3,), (3,)), drop_at={(1, 0, 2)})

    ended = [record.lane for step in step_until(loop, Episodes(2, 2), {}) for record in step]

    assert sorted(ended) == [0, 1] and manager.history[-1] == (1, 1, 2)


def test_a_quota_takes_the_first_episodes_of_each_lane_and_no_further_step() -> None:
    manager, loop = loop_over(((2,), (5,)), delay=2)

    ended = [record.lane for step in step_until(loop, EpisodeQuota(3, 2), {}) for record in step]

    assert sorted(ended) == [0, 0, 1]
    assert len(manager.history) == loop.env_steps == 2 + 2 + 5


# --- time and signals


def test_a_signal_stops_its_round_and_those_before_but_none_after() -> None:
    signal = RoundSignal()
    rules = [signal.rule(round_id) for round_id in (3, 4, 5)]
    assert [rule.is_met for rule in rules] == [False] * 3

    signal.stop(4)

    assert [rule.is_met for rule in rules] == [True, True, False]
    assert not signal.rule(5).is_met, "nor one that begins after the signal came"


def test_a_signal_from_another_thread_ends_a_collection() -> None:
    _, loop = loop_over()
    signal = RoundSignal()
    steps = 0

    for _ in step_until(loop, signal.rule(0), {}):
        steps += 1
        if steps == 5:
            thread = threading.Thread(target=signal.stop, args=(0,))
            thread.start()
            thread.join(60)
        assert steps < 100

    assert steps == 5


# --- a share of all collectors


@pytest.mark.parametrize(("first", "second"), [(2, 5), (5, 2)])
def test_either_stops_at_the_first_and_both_at_the_last(first: int, second: int) -> None:
    _, loop = loop_over()

    assert steps_of(After(first) | After(second), loop) == 2
    assert steps_of(After(first) & After(second), loop) == 5


@pytest.mark.parametrize("limit_first", [False, True])
def test_episodes_or_a_limit_keep_the_lanes_still_that_have_had_theirs(limit_first: bool) -> None:
    manager, loop = loop_over(((1,), (9,)))
    episodes, limit = Episodes(2, 2), After(4)

    steps_of(limit | episodes if limit_first else episodes | limit, loop)

    assert [key for key in manager.history if key[0] == 0] == [(0, 0, 0)]
    assert len(manager.history) == 1 + 4


@pytest.mark.parametrize("episodes_first", [False, True])
def test_episodes_and_rows_go_on_in_all_lanes_once_the_episodes_are_there(episodes_first: bool) -> None:
    manager, loop = loop_over(((1,), (3,)))
    episodes, rows = Episodes(2, 2), Rows(20, lambda: len(loop.rollout))

    steps_of(episodes & rows if episodes_first else rows & episodes, loop)

    assert len(loop.rollout) == 20 and len({key[0] for key in manager.history[-2:]}) == 2


def test_two_rules_that_must_both_be_met_let_no_lane_stand_still_that_one_needs() -> None:
    few, many = EpisodeQuota(2, 2), EpisodeQuota(6, 2)
    _, loop = loop_over(((1,), (2,)))

    ended = [record.lane for step in step_until(loop, few & many, {}) for record in step]

    assert sorted(ended)[:3] == [0, 0, 0] and ended.count(1) == 3


# --- wrong input


def test_numbers_that_are_no_whole_positive_ones_are_refused() -> None:
    makers: list[Any] = [
        lambda value: Rows(value, lambda: 0),
        lambda value: EnvSteps(value, lambda: 0),
        lambda value: Episodes(value, 1),
        lambda value: EpisodeQuota(value, 1),
    ]
    for value in (0, -1, 2.5, "8", True, None):
        for make in makers:
            with pytest.raises(ConfigError, match="expected a whole number, 1 or more"):
                make(value)


def test_a_numpy_integer_is_a_whole_number() -> None:
    assert Rows(np.int64(3), lambda: 3, have=3).is_met


def test_fewer_episodes_than_lanes_are_refused_with_a_way_out() -> None:
    with pytest.raises(ConfigError, match=r"n_episode 2 is fewer than 3 envs.*lower env.collector_env_num"):
        Episodes(2, 3)
    with pytest.raises(ConfigError, match=r"2 evaluation episodes for 3 envs.*n_evaluator_episode"):
        EpisodeQuota(2, 3)


def test_a_round_that_has_no_number_is_refused() -> None:
    signal = RoundSignal()
    bad: list[Any] = [-1, 1.5, None, True]
    for round_id in bad:
        for call in (signal.stop, signal.rule):
            with pytest.raises(ConfigError, match="round_id is .*expected a whole number, 0 or more"):
                call(round_id)
    assert signal.newest == -1


def test_two_rules_that_would_wait_for_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="both let lanes stand still"):
        _ = Episodes(3, 2) | EpisodeQuota(3, 2)
    with pytest.raises(ConfigError, match="both let lanes stand still"):
        _ = (Episodes(3, 2) | After(3)) | EpisodeQuota(3, 2)
