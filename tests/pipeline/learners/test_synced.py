"""Learners in lock step: what they agree on, count, draw and normalise by together."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from ding_like.data.batch import TransitionBatch
from ding_like.envs import EnvFactory, create_env_manager
from ding_like.errors import CheckpointError, CommError, ConfigError, TrainingError
from ding_like.pipeline.learners.synced import Due, SyncedLearners, newest_of_all
from ding_like.pipeline.statistics import SharedStatistics
from ding_like.types import EnvManager
from ding_like.utils.checkpoint import ResumeStore
from tests.pipeline.learners.group_of_threads import ThreadGroup, run_ranks


class Policy:
    takes_whole_batches = False

    def __init__(self, *, whole: bool = False) -> None:
        self.takes_whole_batches = whole
        self.model = {"w": torch.zeros(3)}
        self.learn_mode = SimpleNamespace(state_dict=lambda: {"model": self.model}, load_state_dict=self.load)

    def load(self, state: Any) -> None:
        self.model = state["model"]


def parts(policy: Policy | None = None, *, envstep: int = 0) -> Any:
    collector, learner = SimpleNamespace(envstep=envstep), SimpleNamespace(train_iter=0)
    return SimpleNamespace(policy=policy or Policy(), collector=collector, learner=learner, statistics=None)


def step(group: ThreadGroup, of: Any = None, *, may_refuse: bool = False) -> SyncedLearners:
    return SyncedLearners(group, of or parts(), may_refuse=may_refuse)  # type: ignore[arg-type]  # threads stand for ranks


def rows(*values: float) -> TransitionBatch:
    return TransitionBatch({"reward": np.array(values, np.float32)})


def test_a_signal_may_be_any_learners_and_the_first_decides_on_points_and_evaluations() -> None:
    turns = run_ranks(lambda group: step(group).agree(Due(15 * (group.rank == 1), group.rank == 0, evaluates=False)))

    assert turns == [Due(15, True, False)] * 2


def test_env_steps_are_those_of_all() -> None:
    def collect(group: ThreadGroup) -> int:
        own = parts(envstep=100)
        synced = step(group, own)
        for _ in range(2):
            own.collector.envstep += 3 + group.rank
            synced.count_steps()
        return own.collector.envstep

    assert run_ranks(collect) == [114] * 2


def test_no_learner_draws_until_all_can() -> None:
    def draw(group: ThreadGroup) -> list[bool]:
        batches = [None, None, rows(1.0)] if group.rank else [rows(0.0)] * 3
        synced = step(group)
        return [synced.share_batch(each) is not None for each in batches]

    assert run_ranks(draw) == [[False, False, True]] * 2


def test_once_all_have_drawn_nothing_is_asked_unless_a_buffer_may_refuse() -> None:
    def calls(group: ThreadGroup) -> list[int]:
        counts = []
        for may_refuse in (False, True):
            synced, before = step(group, may_refuse=may_refuse), group.num_calls
            for _ in range(5):
                synced.share_batch(rows(0.0))
            counts.append(group.num_calls - before)
        return counts

    assert run_ranks(calls) == [[1, 5]] * 2


def test_a_buffer_that_refuses_although_it_should_not_ends_the_run() -> None:
    def draw(group: ThreadGroup) -> None:
        synced = step(group)
        synced.share_batch(rows(0.0))
        synced.share_batch(None if group.rank else rows(0.0))

    with pytest.raises(CommError, match="learner rank 1 has no rows for an update"):
        run_ranks(draw)


def test_whole_batches_have_the_same_rows_in_the_same_order_everywhere() -> None:
    def draw(group: ThreadGroup) -> list[float]:
        own = rows(1.0, 2.0) if group.rank else rows(0.0)
        drawn = step(group, parts(Policy(whole=True))).share_batch(own)
        return drawn["reward"].tolist()  # type: ignore[index, union-attr]

    assert run_ranks(draw) == [[0.0, 1.0, 2.0]] * 2


def test_only_the_first_learner_evaluates_and_all_know_what_it_found() -> None:
    def evaluate(group: ThreadGroup) -> list[bool]:
        own = step(group)
        return [own.evaluate(partial(bool, found) if group.rank == 0 else None) for found in (False, True)]

    assert run_ranks(evaluate, 3) == [[False, True]] * 3


def test_the_first_learner_waits_until_all_have_saved() -> None:
    saved: list[int] = []

    def leave(group: ThreadGroup) -> list[int]:
        if group.rank:
            saved.append(group.rank)
        step(group).leave()
        return list(saved)

    assert sorted(run_ranks(leave, 3)[0]) == [1, 2]


def test_all_begin_with_the_firsts_weights() -> None:
    def begin(group: ThreadGroup) -> list[float]:
        policy = Policy()
        policy.model["w"] += group.rank + 1.0
        step(group, parts(policy)).begin(resumes=False)
        return policy.model["w"].tolist()

    assert run_ranks(begin, 3) == [[1.0, 1.0, 1.0]] * 3


def test_points_that_differ_are_refused() -> None:
    def begin(group: ThreadGroup) -> None:
        policy = Policy()
        policy.model["w"][2] += group.rank
        step(group, parts(policy)).begin(resumes=True)

    with pytest.raises(TrainingError, match="the parameters of learner rank 1 differ from those of the first"):
        run_ranks(begin)


def test_learners_are_compared_again_and_again() -> None:
    def compared_at(group: ThreadGroup) -> list[int]:
        own, found = parts(), []
        synced = step(group, own)
        synced.begin(resumes=False)
        for train_iter in (0, 600, 1000, 1400, 1999, 2100):
            own.learner.train_iter = train_iter
            before = group.num_calls
            synced.agree(Due())
            if group.num_calls - before == 2:  # one of them is for the turn
                found.append(train_iter)
        return found

    assert run_ranks(compared_at) == [[1000, 2100]] * 2


def test_statistics_are_merged() -> None:
    def merge(group: ThreadGroup) -> int:
        own, merged = parts(), []
        own.statistics = Mock(SharedStatistics, merge=merged.append)
        step(group, own).merge_statistics()
        return len(merged)

    assert run_ranks(merge) == [1, 1]


def store(folder: Path, *steps: int) -> ResumeStore:
    made = ResumeStore(folder, keep=9, durable=False)
    for step in steps:
        made.save(step, {"run": {"step": step}}, {"arguments": {"of": step}})
    return made


def damage(made: ResumeStore, step: int) -> None:
    (made.folder / str(step) / "run.pt").write_bytes(b"torn")


def find(stores: list[ResumeStore]) -> list[Any]:
    def work(group: ThreadGroup) -> Any:
        return newest_of_all(group, stores[group.rank])  # type: ignore[arg-type]  # threads stand for ranks

    return run_ranks(work, len(stores))


def test_all_go_on_from_the_newest_step_that_all_have_whole(tmp_path: Path) -> None:
    stores = [store(tmp_path / "0", 10, 20, 30), store(tmp_path / "1", 10, 20, 30), store(tmp_path / "2", 10, 20)]
    damage(stores[1], 20)

    found = find(stores)

    assert [each.step for each in found] == [10, 10, 10]
    assert found[2].parts["run"] == {"step": 10}


def test_newer_steps_are_forgotten_so_that_they_are_made_again_by_all(tmp_path: Path) -> None:
    stores = [store(tmp_path / "0", 10, 20), store(tmp_path / "1", 10)]

    find(stores)

    assert [each.steps() for each in stores] == [[10], [10]]


def test_without_a_common_step_all_say_what_each_has(tmp_path: Path) -> None:
    stores = [store(tmp_path / "0", 20), store(tmp_path / "1", 10)]

    with pytest.raises(CheckpointError, match=r"whole for all 2 learners \(rank 0 has \[20\]; rank 1 has \["):
        find(stores)


def test_what_a_run_was_started_with_is_read_without_its_files(tmp_path: Path) -> None:
    made = store(tmp_path, 10, 20)
    damage(made, 20)
    (tmp_path / "30").mkdir()

    assert made.newest_meta() == {"arguments": {"of": 20}} and made.whole_steps() == [10]
    with pytest.raises(CheckpointError, match="nothing to resume"):
        ResumeStore(tmp_path / "nothing").newest_meta()


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
