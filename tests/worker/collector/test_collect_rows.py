"""Collectors answer one call for rows, whatever they count, and stop by a rule beside their target."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.errors import ConfigError, TrainingError
from ding_like.worker import EpisodeSerialCollector, ISerialCollector, SampleSerialCollector
from ding_like.worker.collector.loop import StopRule
from tests.worker.collector.test_battle import collector_of, manager_of, mode
from tests.worker.collector.test_sample import Rows, keys
from tests.worker.scripted_manager import ScriptedManager

Make = Callable[..., Any]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Any] = []

    def make(cls: Any, lengths: Any = ((3,), (3,)), *, n_episode: int | None = None, cfg: Any = (), **rows: Any) -> Any:
        policy = Rows(**rows)
        policy._n_episode = n_episode
        manager = ScriptedManager([list(mine) for mine in lengths])
        full = {**cls.default_config(), **dict(cfg)}
        made.append(cls(full, manager, policy.collect_mode, exp_name=str(tmp_path)))
        return made[-1]

    yield make
    for collector in made:
        collector.close()


AS_ROWS = {"get_train_sample": True}


def after_steps(steps: int) -> StopRule:
    """Return a rule that is asked before each step, and stops the collection after so many."""
    left = iter(range(steps))
    return lambda: next(left, None) is None


@pytest.mark.parametrize(("rows", "got"), [(5, 5), (None, 6)])
def test_samples_are_as_many_as_were_ordered(make: Make, rows: int | None, got: int) -> None:
    collector = make(SampleSerialCollector)

    batch = collector.collect_rows(rows, train_iter=3, policy_kwargs={"version": 9})

    assert len(batch) == got
    assert set(batch["policy_version"].tolist()) == {3} and set(batch["acted_at"].tolist()) == {9}


@pytest.mark.parametrize(("rows", "got"), [(None, 9), (9, 9), (10, 18)])
def test_whole_episodes_are_never_cut_and_come_again_while_rows_lack(make: Make, rows: int | None, got: int) -> None:
    collector = make(EpisodeSerialCollector, n_episode=3, cfg=AS_ROWS)

    batch = collector.collect_rows(rows, train_iter=3, policy_kwargs={"version": 9})

    assert len(batch) == got and batch["done"].sum() == got // 3
    assert set(batch["policy_version"].tolist()) == {3} and set(batch["acted_at"].tolist()) == {9}
    assert len(set(keys(batch))) == got, "no row twice"


def test_whole_episodes_that_are_no_rows_are_refused_before_a_step(make: Make) -> None:
    collector = make(EpisodeSerialCollector, n_episode=3)

    with pytest.raises(ConfigError, match="get_train_sample is False"):
        collector.collect_rows(4)
    assert collector.envstep == 0


def test_episodes_that_make_no_row_are_an_error_and_no_endless_loop(make: Make) -> None:
    collector = make(EpisodeSerialCollector, n_episode=2, cfg=AS_ROWS)
    nothing = collector._policy._replace(segment=lambda rollout: ([], np.zeros(2, np.int64)))
    collector.reset_policy(nothing)

    with pytest.raises(TrainingError, match="2 whole episodes made no training row"):
        collector.collect_rows(4)


def test_the_data_of_several_players_are_no_rows_of_one(tmp_path: Path) -> None:
    collector = collector_of("sample_1v1", tmp_path, manager_of(), [mode(), mode()])

    with pytest.raises(ConfigError, match="data of each player apart"):
        collector.collect_rows(4)
    collector.close()


class Own(ISerialCollector):
    """Collector of a user, who has never heard of rows."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def reset_env(self, _env: Any = None) -> None: ...
    def reset_policy(self, _policy: Any = None) -> None: ...
    def reset(self, _policy: Any = None, _env: Any = None) -> None: ...

    def collect(self, per_collect_target: Any = None, train_iter: int = 0, policy_kwargs: Any = None) -> Any:
        self.calls.append((per_collect_target, train_iter, policy_kwargs))
        return [1, 2, 3]

    @property
    def envstep(self) -> int:
        return 0


def test_a_collector_of_ones_own_is_asked_for_its_target() -> None:
    collector = Own()

    assert collector.collect_rows(7, train_iter=2, policy_kwargs={"eps": 0.5}) == [1, 2, 3]
    collector.collect_rows()

    assert collector.calls == [(7, 2, {"eps": 0.5}), (None, 0, None)]


def test_a_collector_of_ones_own_that_takes_no_stop_rule_says_so() -> None:
    with pytest.raises(ConfigError, match="Own takes no stop rules"):
        Own().collect_rows(7, stop=bool)


# --- a rule beside the target


def test_a_collection_that_is_stopped_returns_what_is_ready_and_loses_nothing(make: Make) -> None:
    collector = make(SampleSerialCollector, ((9,), (9,)))

    first = collector.collect(n_sample=100, stop=after_steps(3))
    second = collector.collect(n_sample=4)

    assert keys(first) == [(lane, 0, step) for step in range(3) for lane in range(2)]
    assert keys(second) == [(lane, 0, step) for step in (3, 4) for lane in range(2)]


def test_a_stop_leaves_open_windows_for_the_next_call(make: Make) -> None:
    collector = make(SampleSerialCollector, ((9,), (9,)), nstep=3)

    first = collector.collect(n_sample=100, stop=after_steps(4))
    second = collector.collect(n_sample=4)

    assert [key[2] for key in keys(first)] == [0, 0, 1, 1] and [key[2] for key in keys(second)] == [2, 2, 3, 3]


def test_a_surplus_that_was_there_is_returned_though_no_step_was_allowed(make: Make) -> None:
    collector = make(SampleSerialCollector, ((9,), (9,)))
    collector.collect(n_sample=3)
    batch = collector.collect(n_sample=100, stop=lambda: True)

    assert keys(batch) == [(1, 0, 1)] and collector.envstep == 4


def test_an_on_policy_collection_that_is_stopped_drops_nothing_that_it_can_hand_out(make: Make) -> None:
    collector = make(SampleSerialCollector, ((9,), (9,)), on_policy=True)

    batch = collector.collect(n_sample=100, stop=after_steps(3))

    assert len(batch) == 6 and collector.state_dict()["report"]["total"]["dropped_steps"] == 0


def test_episodes_are_stopped_between_two_lots(make: Make) -> None:
    batch = make(EpisodeSerialCollector, n_episode=2, cfg=AS_ROWS).collect_rows(100, stop=lambda: True)

    assert len(batch) == 6, "the first lot is whole"


def test_battles_stop_by_a_rule_too(tmp_path: Path) -> None:
    collector = collector_of("sample_1v1", tmp_path, manager_of(), [mode(), mode()])

    data, _ = collector.collect(n_sample=1000, stop=after_steps(2))

    assert [len(each) for each in data] == [6, 6]
    collector.close()


def test_a_battle_whose_data_nobody_keeps_is_refused(tmp_path: Path) -> None:
    collector = collector_of("sample_1v1", tmp_path, manager_of(), [mode(collect_data=False), mode(collect_data=False)])

    with pytest.raises(ConfigError, match="no player's data are kept"):
        collector.collect(n_sample=10)
    collector.close()


def test_settings_for_each_player_must_be_as_many(tmp_path: Path) -> None:
    collector = collector_of("sample_1v1", tmp_path, manager_of(), [mode(), mode()])

    with pytest.raises(ConfigError, match="a list of 3 for 2 players"):
        collector.collect(n_sample=10, policy_kwargs=[{}, {}, {}])
    collector.close()


def test_a_number_of_samples_or_episodes_that_is_none_is_refused(make: Make) -> None:
    for cls, name in ((SampleSerialCollector, "n_sample"), (EpisodeSerialCollector, "n_episode")):
        collector = make(cls)
        for number in (0, -3, 2.5, "8"):
            with pytest.raises(ConfigError, match=f"{name} is .*whole number"):
                collector.collect(number)
