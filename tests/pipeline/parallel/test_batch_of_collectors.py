"""On-policy batches hold the rows of several collectors, each with lanes 0, 1, 2... of its own."""

from __future__ import annotations

import numpy as np
import pytest

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.rows import BatchReader
from ding_like.data.batch import TransitionBatch
from tests.policy.test_ppo import make_policy, make_rollout


def batch_of(segments: list[TransitionBatch]) -> TransitionBatch:
    """Return what a learner draws of these segments."""
    reader = BatchReader(1000, on_policy=True)
    news, ids, first_row = [], [], 0
    for serial, segment in enumerate(segments, start=1):
        news.append((m.NewSegment(serial, f"s{serial}", len(segment), first_row, "x", 1), dict(segment.columns)))
        ids.append(serial * m.ROWS_PER_SEGMENT + np.arange(len(segment)))
        first_row += len(segment)
    reader.take(news, m.Batches(1, np.arange(first_row), np.concatenate(ids), None))
    return reader.draw()


def test_no_lane_has_rows_of_two_segments() -> None:
    policy = make_policy()
    segments = [policy.segment(make_rollout(policy, seed=seed))[0] for seed in range(3)]

    batch = batch_of(segments)

    assert [each.tolist() for each in batch["lane"].reshape(3, 6, 4)] == [
        [[first, first + 1, first + 2, first + 3]] * 6 for first in (0, 4, 8)
    ]


def test_advantages_that_ppo_recomputes_are_those_of_each_collector() -> None:
    policy = make_policy(recompute_adv=True, learn=dict(epoch_per_collect=2, batch_size=1000))
    segments = [policy.segment(make_rollout(policy, seed=seed))[0] for seed in range(2)]

    # No update comes between the two epochs: the critic says what it said to the collectors.
    given, recomputed = policy.minibatches(batch_of(segments), np.random.default_rng(0))

    def by_obs(batch: TransitionBatch) -> dict[bytes, float]:
        return {obs.tobytes(): value for obs, value in zip(batch["obs"], batch["advantage"].tolist(), strict=True)}

    assert len(by_obs(given)) == 48
    assert by_obs(recomputed) == pytest.approx(by_obs(given), abs=1e-6)


def test_rows_that_are_sequences_have_lanes_of_their_segment_too() -> None:
    rows = TransitionBatch({"lane": np.array([[0, 0, 0], [1, 1, 1]])})

    assert batch_of([rows, rows])["lane"][:, 0].tolist() == [0, 1, 2, 3]
