import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ding_like.policy.base import Policy
from tests.worker.scripted_manager import CountingActor, ScriptedManager

GAMMA = 0.9


class Rows(Policy):
    """A policy that only segments."""

    def __init__(self, nstep: int) -> None:
        self._nstep, self._gamma = nstep, GAMMA


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
    loop, policy = RolloutLoop(manager, CountingActor(), rng=rng), Rows(nstep)
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
