"""Rows that are sequences: each step of an episode is learned from once, whatever the lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ding_like.data.rollout import Rollout
from ding_like.errors import ConfigError
from ding_like.policy.rows import NStepRows, SequenceRows, SequenceShape, windows_of
from tests.worker.scripted_manager import CountingActor, ScriptedManager

GAMMA = 0.9


def slow_rows(history, manager, nstep):
    """Walk each lane's episodes step by step and write down what each training row must hold."""
    rows = {}
    lanes = {}
    for lane, episode, step in history:
        lanes.setdefault((lane, episode), []).append(step)
    for (lane, episode), steps in lanes.items():
        lengths = manager._lengths[lane]
        length = lengths[episode % len(lengths)]
        ended = len(steps) == length
        for step in steps:
            window = [s for s in range(step, step + nstep) if s < len(steps)]
            if len(window) < nstep and not ended:
                continue
            last = window[-1]
            done = ended and last == length - 1
            rows[lane, episode, step] = (
                sum(GAMMA**k * manager.reward_of(lane, episode, s) for k, s in enumerate(window)),
                GAMMA ** len(window),
                last + 1,
                done and episode % 2 == 0,
                done and episode % 2 == 1,
            )
    return rows


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=3), min_size=1, max_size=4),
    st.integers(1, 5),
    st.integers(0, 3),
    st.integers(0, 10_000),
)
def test_rows_equal_a_slow_walk_with_nothing_lost_or_doubled(lengths, nstep, delay, seed):
    from ding_like.worker.collector.loop import RolloutLoop

    rng = np.random.default_rng(seed)
    manager = ScriptedManager(lengths, delay=delay, seed=seed)
    loop, policy = RolloutLoop(manager, CountingActor(), rng=rng), NStepRows(nstep, GAMMA)
    got = {}
    for _ in range(6):
        for _ in range(int(rng.integers(1, 6))):
            loop.step({})
        if not len(loop.rollout):
            continue
        expected_rows = loop.num_ready(policy.num_ready)
        batch = loop.take(policy.segment)
        assert len(batch) == expected_rows, "num_ready must tell what segment makes"
        discount = batch["discount"] if nstep > 1 else np.full(len(batch), GAMMA)
        for i in range(len(batch)):
            key = tuple(int(v) for v in batch["obs"][i])
            assert key not in got, "a row came twice"
            assert (batch["next_obs"][i][:2] == batch["obs"][i][:2]).all(), "crossed into another episode"
            got[key] = (
                float(batch["reward"][i]),
                float(discount[i]),
                int(batch["next_obs"][i][2]),
                bool(batch["terminated"][i]),
                bool(batch["truncated"][i]),
            )
    expected = slow_rows(manager.history, manager, nstep)
    assert got.keys() == expected.keys()
    for key, row in expected.items():
        assert got[key] == pytest.approx(row, rel=1e-5)


LANES = 3


class Play:
    """Log recognisable steps: an observation is (lane, episode, step), and so is what comes after it."""

    def __init__(self, seed: int, *, end: float = 0.15) -> None:
        self.rng = np.random.default_rng(seed)
        self.end = end
        self.rollout = Rollout(LANES)
        self.step = np.zeros(LANES, np.int64)
        self.episode = np.zeros(LANES, np.int64)
        self.closed: list[int] = []
        self.open_rows = np.zeros(LANES, np.int64)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            lanes = np.flatnonzero(self.rng.random(LANES) < 0.8)
            if not len(lanes):
                continue
            ended = self.rng.random(len(lanes)) < self.end
            terminated = ended & (self.rng.random(len(lanes)) < 0.5)
            obs = np.stack([lanes, self.episode[lanes], self.step[lanes]], axis=1).astype(np.float32)
            self.rollout.append(
                {
                    "obs": obs,
                    "next_obs": obs + np.float32([0, 0, 1]),
                    "action": self.step[lanes] % 2,
                    "state/h": obs[:, 1:] * 10,
                    "lane": lanes,
                    "episode_id": self.episode[lanes],
                    "step": self.step[lanes],
                    "policy_version": self.step[lanes] + 7,
                    "reward": obs[:, 2] + 1,
                    "terminated": terminated,
                    "truncated": ended & ~terminated,
                }
            )
            self.open_rows[lanes] += 1
            self.step[lanes] += 1
            for lane in lanes[ended]:
                self.closed.append(int(self.open_rows[lane]))
                self.open_rows[lane] = self.step[lane] = 0
                self.episode[lane] += 1

    def take(self, shape: SequenceShape) -> Any:
        length = np.concatenate([np.array(self.closed, np.int64), self.open_rows])
        expected = SequenceRows(shape).num_ready(length, np.arange(len(length)) < len(self.closed))
        batch, keep = SequenceRows(shape).segment(self.rollout)
        assert len(batch) == expected, "num_ready says what segment makes"
        self.rollout.keep_last(keep)
        self.open_rows[:] = keep
        self.closed = []
        return batch


@pytest.mark.parametrize(
    ("burn_in", "num_steps", "often"), [(0, 1, 3), (0, 4, 1), (2, 3, 1), (2, 3, 50), (5, 2, 3), (3, 10, 1)]
)
def test_each_step_is_learned_from_once_with_what_came_before_and_after_it(
    burn_in: int, num_steps: int, often: int
) -> None:
    shape, play = SequenceShape(num_steps, burn_in), Play(seed=often)
    learned: list[tuple[int, int, int]] = []
    for _ in range(150 // often):
        play.run(often)
        batch = play.take(shape)
        for row in range(len(batch)):
            mask, valid = batch["mask"][row], np.arange(shape.length) < batch["num_steps"][row]
            obs, last = batch["obs"][row], batch["num_steps"][row] - 1
            begins = obs[0, 2] == 0
            assert (mask == (valid & ((np.arange(shape.length) >= burn_in) | begins))).all()
            assert (np.diff(obs[: last + 2, 2]) == 1).all(), "steps follow each other, and what came after them"
            assert (obs[: last + 2, :2] == obs[0, :2]).all(), "a row is of one lane and one episode"
            assert (obs[last + 2 :] == 0).all() and (batch["reward"][row][~valid] == 0).all()
            assert (batch["reward"][row][valid] == obs[:-1, 2][valid] + 1).all()
            assert (batch["state/h"][row] == obs[0, 1:] * 10).all(), "the state is that before the first step"
            assert (batch["lane"][row], batch["policy_version"][row]) == (obs[0, 0], obs[0, 2] + 7)
            ends = batch["terminated"][row] | batch["truncated"][row]
            assert not ends[:last].any() and (ends[last] or valid.all())
            learned += [tuple(int(n) for n in step) for step in obs[:-1][mask]]
    assert len(learned) == len(set(learned)) > 0
    finished = {(lane, episode) for lane in range(LANES) for episode in range(play.episode[lane])}
    last = {key: max(s for *k, s in learned if tuple(k) == key) for key in finished}
    whole = {(*key, step) for key in finished for step in range(last[key] + 1)}
    assert whole <= set(learned), "no step of an episode that ended is left out"


def test_closing_a_log_makes_windows_of_what_is_open() -> None:
    lane, ended = np.array([0, 1, 0, 1, 0]), np.array([False, False, True, False, False])

    windows, keep = windows_of(lane, ended, SequenceShape(2), num_lanes=2, closes=True)

    assert windows.row.tolist() == [[0, 2], [4, 4], [1, 3]]
    assert windows.valid.tolist() == [[True, True], [True, False], [True, True]]
    assert keep.tolist() == [0, 0]


def test_an_empty_log_makes_no_windows() -> None:
    windows, keep = windows_of(np.zeros(0, np.int64), np.zeros(0, bool), SequenceShape(2), num_lanes=2)

    assert windows.row.shape == (0, 2) and keep.tolist() == [0, 0]


def test_steps_after_dropped_ones_do_not_continue_an_episode() -> None:
    play = Play(seed=0, end=0.0)
    play.run(10)
    play.episode += 1  # the end of the episode was dropped
    play.step[:] = 0
    play.run(10)

    batch, _ = SequenceRows(SequenceShape(4)).segment(play.rollout)

    for obs, count in zip(batch["obs"], batch["num_steps"], strict=True):
        assert (obs[: count + 1, 1] == obs[0, 1]).all()


def test_burn_in_that_nothing_follows_makes_no_row() -> None:
    shape, play = SequenceShape(3, burn_in=2), Play(seed=0, end=0.0)
    while play.step.min() < 5:
        play.run(1)
    play.take(shape)
    left = play.open_rows.copy()
    play.episode += 1  # the rest of the episode was dropped
    play.step[:] = 0
    play.run(20)

    batch, _ = SequenceRows(shape).segment(play.rollout)

    assert (left >= 2).all() and batch["mask"].any(axis=1).all()
    old = batch["obs"][:, 0, 1] == 0
    assert old.sum() == (left > 2).sum(), "what was collected behind the burn-in is learned from"


@pytest.mark.parametrize(("num_steps", "burn_in"), [(0, 2), (3, -1)])
def test_lengths_without_a_step_to_learn_from_are_refused(num_steps: int, burn_in: int) -> None:
    with pytest.raises(ConfigError, match="expected at least 1 and 0"):
        SequenceShape(num_steps, burn_in)
