"""Learners normalise alike: by what the envs of all of them have observed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ding_like.envs import EnvFactory, create_env_manager
from ding_like.errors import ConfigError
from ding_like.pipeline.statistics import SharedStatistics
from ding_like.types import EnvManager
from tests.pipeline.learners.group_of_threads import ThreadGroup, run_ranks

WRAPPERS = [dict(type="obs_norm"), dict(type="reward_norm")]


def make(seed: int, wrappers: Any = WRAPPERS) -> EnvManager:
    cfg = dict(type="gymnasium", env_id="Pendulum-v1", max_episode_steps=20, wrappers=wrappers)
    manager = create_env_manager(dict(type="base"), [EnvFactory(cfg) for _ in range(2)])
    manager.seed(seed)
    return manager


def play(manager: EnvManager, steps: int) -> None:
    for _ in range(steps):
        manager.step(np.arange(2), np.zeros((2, 1), np.float32))


def normalise_by(env: EnvManager) -> list[Any]:
    """Return mean and count of each wrapper of each lane."""
    return [
        [(np.asarray(each["state"]["mean"]).tolist(), each["state"]["count"]) for each in lane]
        for lane in env.wrapper_states()
    ]


def test_all_learners_normalise_by_what_all_have_observed() -> None:
    def work(group: ThreadGroup) -> tuple[list[Any], Any]:
        env = make(10 * group.rank)
        statistics = SharedStatistics(env)
        env.launch()
        for steps in (3 + group.rank, 5):
            play(env, steps)
            statistics.merge(group)  # type: ignore[arg-type]  # threads stand for ranks
        env.close()
        return normalise_by(env), statistics.state_dict()

    (first, saved), (second, saved_there) = run_ranks(work)

    assert first == second and first[0] == first[1]
    # Two lanes on each rank: their first observations, and one for each step.
    (lane,) = saved["lanes"]
    assert {each["type"]: each["state"]["count"] for each in lane} == {
        "RewardNorm": 2 * (3 + 4 + 5 + 5),
        "ObsNorm": 4 + 2 * (3 + 4 + 5 + 5),
    }
    assert str(saved) == str(saved_there)


def test_a_learner_goes_on_from_the_statistics_of_its_point() -> None:
    def work(group: ThreadGroup) -> bool:
        env = make(10 * group.rank)
        statistics = SharedStatistics(env)
        env.launch()
        play(env, 4)
        statistics.merge(group)  # type: ignore[arg-type]
        other = make(10 * group.rank)
        resumed = SharedStatistics(other)
        other.launch()
        play(other, 4)
        other.load_wrapper_states(env.wrapper_states())
        resumed.load_resume_state(statistics.resume_state())
        for each, of in ((env, statistics), (other, resumed)):
            play(each, 3)
            of.merge(group)  # type: ignore[arg-type]
            each.close()
        return normalise_by(env)[0][1][1] > 0 and str(statistics.resume_state()) == str(resumed.resume_state())

    assert run_ranks(work) == [True, True]


def test_without_statistics_nothing_is_exchanged() -> None:
    def work(group: ThreadGroup) -> int:
        env = make(0, wrappers=[])
        statistics = SharedStatistics(env)
        env.launch()
        statistics.merge(group)  # type: ignore[arg-type]
        env.close()
        return group.num_calls

    assert run_ranks(work) == [0, 0] and SharedStatistics(make(0, wrappers=[])).state_dict() == {}


def test_wrappers_that_cannot_be_merged_are_refused() -> None:
    env = make(0, wrappers=[])
    env.wrapper_states = lambda: [[{"type": "Own", "state": {"secret": 1}}]]  # type: ignore[method-assign]

    with pytest.raises(ConfigError, match="Own"):
        SharedStatistics(env)
