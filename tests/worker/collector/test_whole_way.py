"""Every transition is recognised on its way through a collector: none is lost, doubled or crossed with another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ding_like.data.batch import TransitionBatch
from ding_like.worker import EpisodeSerialCollector, SampleSerialCollector
from tests.policy.test_ppo import Knower, make_policy
from tests.worker.collector.test_sample import Rows, keys
from tests.worker.scripted_manager import CountingActor, ScriptedManager

pytestmark = pytest.mark.usefixtures("in_tmp")

GAMMA = 0.9
LENGTHS = st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=3), min_size=1, max_size=4)
# (lane, episode, step) at which something breaks.
FAULTS = st.sets(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 3)), max_size=8)
property_test = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
Key = tuple[int, int, int]


class Book:
    """Expected training rows, from the episodes that the manager plays."""

    def __init__(self, manager: ScriptedManager, nstep: int, broken: set[Key]) -> None:
        self._manager, self._nstep = manager, nstep
        # An episode that broke off is void; a fault after an episode's end is none.
        self._void = {
            (lane, ep) for lane, ep, step in broken if lane < len(manager._lengths) and step < self._length(lane, ep)
        }
        self._played = [key for key in manager.history if key not in broken]

    def window(self, key: Key) -> list[int]:
        lane, episode, step = key
        return list(range(step, min(step + self._nstep, self._length(lane, episode))))

    def _length(self, lane: int, episode: int) -> int:
        lengths = self._manager._lengths[lane]
        return lengths[episode % len(lengths)]

    def complete(self) -> set[Key]:
        """Return the rows of episodes without a fault whose whole window has been played."""
        played = set(self._played)
        return {
            key
            for key in played
            if key[:2] not in self._void and all((*key[:2], step) in played for step in self.window(key))
        }

    def assert_is_true(self, row: Any) -> None:
        lane, episode, step = (int(value) for value in row["obs"])
        window = self.window((lane, episode, step))
        is_end = window[-1] + 1 == self._length(lane, episode)
        reward = sum(GAMMA**k * self._manager.reward_of(lane, episode, s) for k, s in enumerate(window))
        assert row["next_obs"].tolist() == [lane, episode, window[-1] + 1], "the bootstrap is of another observation"
        assert float(row["reward"]) == pytest.approx(reward)
        assert bool(row["terminated"]) == (is_end and episode % 2 == 0)
        assert bool(row["truncated"]) == (is_end and episode % 2 == 1)
        assert (int(row["lane"]), int(row["step"])) == (lane, step)
        assert row["seen"].tolist() == row["obs"].tolist(), "what the actor said belongs to another observation"
        if self._nstep > 1:
            assert float(row["discount"]) == pytest.approx(GAMMA ** len(window))


def collector_of(cls: Any, manager: ScriptedManager, mode: Any, **cfg: Any) -> Any:
    return cls({**cls.default_config(), **cfg}, manager, mode, exp_name="exp")


@property_test
@given(LENGTHS, st.integers(1, 4), st.integers(0, 3), st.booleans(), FAULTS, st.booleans(), st.integers(0, 10_000))
def test_samples_are_neither_lost_nor_doubled_nor_crossed(lengths, nstep, delay, on_policy, faults, is_abnormal, seed):
    manager = ScriptedManager(lengths, delay=delay, seed=seed, **{"abnormal_at" if is_abnormal else "drop_at": faults})
    policy = Rows(nstep=nstep, n_sample=None, on_policy=on_policy)
    collector = collector_of(SampleSerialCollector, manager, policy.collect_mode)
    sizes = np.random.default_rng(seed).integers(1, 12, 6).tolist()

    batches = [collector.collect(n_sample=size, train_iter=i) for i, size in enumerate(sizes)]
    collector.close()

    book = Book(manager, nstep, faults)
    got = [key for batch in batches for key in keys(batch)]
    assert [len(batch) for batch in batches] == sizes
    assert len(set(got)) == len(got), "a row came twice"
    for batch in batches:
        for row in batch:
            book.assert_is_true(row)
    for lane in range(len(lengths)):
        mine = [key for key in got if key[0] == lane]
        assert mine == sorted(mine), "a lane's rows came in another order than it played"
        if not on_policy and mine:
            complete = {key for key in book.complete() if key[0] == lane and key <= mine[-1]}
            assert complete <= set(mine), "a row was lost"
    assert collector.envstep == len(manager.history)


@property_test
@given(LENGTHS, st.integers(1, 4), st.integers(0, 3), st.integers(0, 10_000))
def test_what_an_on_policy_collector_does_not_hand_out_is_counted(lengths, nstep, delay, seed):
    manager = ScriptedManager(lengths, delay=delay, seed=seed)
    policy = Rows(nstep=nstep, n_sample=5, on_policy=True)
    collector = collector_of(SampleSerialCollector, manager, policy.collect_mode)

    handed_out = sum(len(collector.collect()) for _ in range(6))
    dropped = collector.state_dict()["report"]["total"]["dropped_steps"]
    collector.close()

    assert handed_out + dropped == len(manager.history) == collector.envstep


@property_test
@given(LENGTHS, st.integers(1, 4), st.integers(0, 3), FAULTS, st.booleans(), st.integers(0, 10_000))
def test_whole_episodes_become_all_their_rows(lengths, nstep, delay, faults, is_abnormal, seed):
    manager = ScriptedManager(lengths, delay=delay, seed=seed, **{"abnormal_at" if is_abnormal else "drop_at": faults})
    policy = Rows(nstep=nstep)
    collector = collector_of(EpisodeSerialCollector, manager, policy.collect_mode, get_train_sample=True)
    n_episode = len(lengths) + seed % 4

    batches = [collector.collect(n_episode=n_episode) for _ in range(3)]
    collector.close()

    book = Book(manager, nstep, faults)
    got = [key for batch in batches for key in keys(batch)]
    assert len(set(got)) == len(got) and set(got) == book.complete()
    assert len({key[:2] for key in got}) == 3 * n_episode
    for batch in batches:
        for row in batch:
            book.assert_is_true(row)


@pytest.mark.parametrize("delay", [0, 2])
@pytest.mark.parametrize("cls", [SampleSerialCollector, EpisodeSerialCollector])
def test_advantages_judge_the_true_next_observation(cls, delay):
    manager = ScriptedManager([[3, 1, 5], [4], [2, 7]], delay=delay)
    policy = make_policy(network=Knower(), discount_factor=GAMMA, collect=dict(gae_lambda=0.0))
    mode = policy.collect_mode._replace(actor=CountingActor())
    is_sample = cls is SampleSerialCollector
    collector = collector_of(cls, manager, mode, **({} if is_sample else {"get_train_sample": True}))

    batches: list[TransitionBatch] = [collector.collect(10 if is_sample else 4) for _ in range(5)]
    collector.close()

    ends = set()
    for batch in batches:
        for row in batch:
            lane, episode, step = (int(value) for value in row["obs"])
            bootstrap = 0.0 if row["terminated"] else GAMMA * Knower.value_of(lane, episode, step + 1)
            expected = manager.reward_of(lane, episode, step) + bootstrap - Knower.value_of(lane, episode, step)
            assert float(row["advantage"]) == pytest.approx(expected, rel=1e-6, abs=1e-4)
            ends.add((bool(row["terminated"]), bool(row["truncated"])))
    assert ends == {(False, False), (True, False), (False, True)}
