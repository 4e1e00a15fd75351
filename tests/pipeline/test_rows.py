"""Rows in one process: the ratio of updates to what was collected."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ding_like.comm.channels import Segment, Version
from ding_like.config import FrozenConfig
from ding_like.data.batch import TransitionBatch
from ding_like.errors import SchemaError
from ding_like.pipeline.rows import RemoteCollectors, RowQueue, UpdateRatio, least_lead
from ding_like.worker import create_buffer
from tests.support import Clock


def test_updates_follow_whole_env_steps_after_the_warmup() -> None:
    # 2 updates for each 3 env steps after 10: at 12 steps 4/3 would do, which is one whole update.
    ratio = UpdateRatio(warmup_steps=10, steps=3, updates=2, max_lead=0)

    assert [ratio.allowed_updates(step) for step in (0, 10, 11, 12, 13, 16)] == [0, 0, 0, 1, 2, 4]


@given(st.integers(0, 50), st.integers(1, 17), st.integers(1, 17), st.integers(0, 500))
def test_without_a_lead_the_credit_is_the_fewest_steps_that_allow_what_was_granted(
    warmup: int, steps: int, updates: int, granted: int
) -> None:
    ratio = UpdateRatio(warmup_steps=warmup, steps=steps, updates=updates, max_lead=0)

    needed = ratio.credit(0, granted)

    assert ratio.allowed_updates(needed) >= granted
    if granted:
        assert ratio.allowed_updates(needed - 1) < granted, "collecting must not run ahead of the ratio"


def test_a_started_update_counts_as_a_whole_one() -> None:
    # 1 update for 2 steps, 3 for 2 granted 1: 2/3 of a step is one step, not none.
    assert UpdateRatio(warmup_steps=0, steps=2, updates=3, max_lead=0).credit(0, 1) == 1
    assert UpdateRatio(warmup_steps=5, steps=2, updates=1, max_lead=4).credit(9, 1) == 2


def test_credit_is_never_negative() -> None:
    assert UpdateRatio(warmup_steps=0, steps=1, updates=1, max_lead=0).credit(100, 3) == 0


def test_the_least_lead_holds_a_batch_a_segment_and_the_steps_of_an_update() -> None:
    for batch_size, warmup, lead in [(64, 0, 64 + 8 + 3), (64, 100, 8 + 3), (64, 60, 4 + 8 + 3)]:
        found = least_lead(warmup_steps=warmup, steps=5, updates=2, segment_steps=8, batch_steps=batch_size)

        assert found == lead


def queue(
    store: Any, *, updates: int, rows: int = 4, batch_size: int = 2, unit: str = "n_sample", priority: bool = False
) -> RowQueue:
    learn = dict(update_per_collect=updates, batch_size=batch_size)
    cfg = FrozenConfig(dict(policy=dict(collect={unit: rows}, learn=learn, priority=priority)))
    return RowQueue(cfg, store, newest=lambda: Version(0, 3))


def segment(rows: int = 4) -> Segment:
    return Segment(TransitionBatch({"reward": np.zeros(rows, np.float32)}), Version(0, 0), rows)


def num_updates(rows: RowQueue) -> int:
    count = 0
    while rows.next() is not None:
        count += 1
    return count


def test_updates_that_too_few_rows_cannot_give_are_not_made_up_later(tmp_path: Path) -> None:
    buffer = create_buffer(dict(type="naive", replay_buffer_size=64), exp_name=str(tmp_path))
    rows = queue(buffer, updates=3, batch_size=6)
    rows.put(segment())
    assert num_updates(rows) == 0  # 4 rows, a batch has 6
    assert rows.order().rows == 4, "the collector must not wait for updates that do not come"

    rows.put(segment())

    assert num_updates(rows) == 3
    buffer.close()


def test_updates_follow_rows_where_segments_are_of_different_sizes() -> None:
    rows = queue(Watched(), updates=2)

    made = []
    for size in (4, 1, 1, 2, 7, 1):
        rows.put(segment(size))
        made.append(num_updates(rows))

    assert made == [2, 0, 1, 1, 3, 1], "2 for each 4 rows, in segments of any size"
    assert sum(made) == 2 * 16 // 4


def test_updates_follow_the_episodes_that_were_asked_for_where_segments_are_of_whole_ones() -> None:
    rows = queue(Watched(), updates=3, rows=8, unit="n_episode")

    made = []
    for asked, size in ((4, 100), (4, 7), (2, 50), (6, 60), (None, 9)):
        rows.put(segment(size), asked=asked)
        made.append(num_updates(rows))

    assert made == [1, 2, 0, 3, 3], "3 for each 8 episodes, of as many rows as they have"


def test_without_a_buffer_each_segment_is_learned_from_once_and_the_next_one_waits_for_that() -> None:
    rows, sent = queue(None, updates=9), segment(7)

    assert rows.put(sent).rows == 0
    assert rows.next() is sent.batch and rows.next() is None
    assert rows.order().rows == 4


def test_without_updates_collecting_waits_for_nothing() -> None:
    rows = queue(Watched(), updates=0)

    assert rows.put(segment()).rows == 4 and rows.next() is None


def test_rows_of_random_actions_are_stored_and_allow_no_update() -> None:
    store = Watched()
    rows = queue(store, updates=2)

    rows.put_random(segment(40))

    assert num_updates(rows) == 0 and rows.env_step == 40 and store.pushed_at == [40]
    assert rows.order().rows == 4


def test_rows_go_on_from_a_saved_state_with_the_part_of_an_update_that_was_left() -> None:
    rows = queue(Watched(), updates=1)
    rows.put(segment(7))
    assert num_updates(rows) == 1

    again = queue(Watched(), updates=1)
    again.load_state_dict(rows.state_dict())
    again.put(segment(1))

    assert num_updates(again) == 1


class Watched:
    """Store that records what it is given."""

    def __init__(self) -> None:
        self.pushed_at: list[int] = []
        self.sampled: list[tuple[int, int]] = []
        self.updates: list[dict[str, Any]] = []

    def push(self, data: Any, cur_collector_envstep: int) -> None:
        self.pushed_at.append(cur_collector_envstep)

    def sample(self, batch_size: int, cur_learner_iter: int) -> TransitionBatch:
        self.sampled.append((batch_size, cur_learner_iter))
        ids = np.arange(2)
        return TransitionBatch({"replay_buffer_idx": ids, "replay_unique_id": ids + 10})

    def update(self, info: Any) -> None:
        self.updates.append(info)

    def count(self) -> int:
        return 0


def learner(priority: Any = None) -> Any:
    return SimpleNamespace(train=lambda batch, env_step: None, priority_info={"priority": priority})


def test_a_store_is_given_the_env_step_the_iteration_and_the_rows_of_the_priorities() -> None:
    store = Watched()
    rows = queue(store, updates=1, priority=True)
    rows.put(segment())

    assert rows.train_next(learner(np.array([0.5, 2.0], np.float32)))

    assert store.pushed_at == [4] and store.sampled == [(2, 3)]
    (info,) = store.updates
    assert info["replay_buffer_idx"].tolist() == [0, 1] and info["replay_unique_id"].tolist() == [10, 11]
    assert info["priority"].tolist() == [0.5, 2.0]


def test_without_priorities_a_store_is_given_nothing() -> None:
    store = Watched()
    rows = queue(store, updates=1)
    rows.put(segment())

    assert rows.train_next(learner()) and store.updates == []


def test_a_policy_that_lacks_priorities_is_refused() -> None:
    rows = queue(Watched(), updates=1, priority=True)
    rows.put(segment())

    with pytest.raises(SchemaError, match=r"gave no priorities.*policy.priority=False"):
        rows.train_next(learner())


def test_a_collector_s_rates_and_lag_are_reported_and_nothing_of_one_without_rows() -> None:
    clock = Clock()
    report = RemoteCollectors(clock=clock)
    for _ in range(5):
        report.note("actor1", segment(4))
        clock.advance(2.0)
    report.note_put(train_iter=10, version=7, age_s=0.5)
    report.dropped_rows = 3

    details = report.details()

    assert report.report_of("actor1", newest=9) == {"env_steps_per_s": 2.0, "rows_per_s": 2.0, "policy_lag": 9.0}
    assert report.report_of("actor2", newest=9) == {}
    assert (details.policy_lag, details.data_age_s, details.lost_rows) == (3.0, 0.5, {"too old": 3})
    assert RemoteCollectors().details().policy_lag is None
