"""Rows in one process: how updates follow segments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.comm.channels import Segment, Version
from ding_like.comm.local import LocalRows
from ding_like.data.batch import TransitionBatch
from ding_like.pipeline.update_ratio import UpdateRatio
from ding_like.worker import create_buffer


def rows_over(buffer: Any, *, updates: int, batch_size: int = 6) -> LocalRows:
    return LocalRows(
        buffer,
        UpdateRatio.per_segment(updates),
        segment_rows=4,
        batch_size=batch_size,
        newest=lambda: Version(0, 3),
        env_step=100,
    )


def segment(rows: int = 4) -> Segment:
    return Segment(TransitionBatch({"reward": np.zeros(rows, np.float32)}), Version(0, 0), rows)


def num_updates(rows: LocalRows) -> int:
    count = 0
    while rows.next(timeout_s=0.0) is not None:
        count += 1
    return count


def test_updates_that_too_few_rows_cannot_give_are_not_made_up_later(tmp_path: Path) -> None:
    buffer = create_buffer(dict(type="naive", replay_buffer_size=64), exp_name=str(tmp_path))
    rows = rows_over(buffer, updates=3)
    rows.put(segment())
    assert num_updates(rows) == 0  # 4 rows, a batch has 6
    assert rows.order(timeout_s=0.0).rows == 4, "the collector must not wait for updates that do not come"

    rows.put(segment())

    assert num_updates(rows) == 3
    buffer.close()


def by_rows(store: Any, *, updates: int, rows: int) -> LocalRows:
    return LocalRows(
        store,
        UpdateRatio.per_rows(updates, rows),
        segment_rows=rows,
        batch_size=2,
        newest=lambda: Version(0, 3),
        counts_rows=True,
    )


def test_updates_follow_rows_where_segments_are_of_different_sizes() -> None:
    rows = by_rows(Watched(), updates=2, rows=4)

    made = []
    for size in (4, 1, 1, 2, 7, 1):
        rows.put(segment(size))
        made.append(num_updates(rows))

    assert made == [2, 0, 1, 1, 3, 1], "2 for each 4 rows, whoever brings them"
    assert sum(made) == 2 * 16 // 4


def test_updates_follow_the_episodes_that_were_asked_for_where_segments_are_of_whole_ones() -> None:
    rows = LocalRows(
        Watched(),
        UpdateRatio.per_rows(3, 8),
        segment_rows=8,
        batch_size=2,
        newest=lambda: Version(0, 3),
        counts_episodes=True,
    )

    made = []
    for asked, size in ((4, 100), (4, 7), (2, 50), (6, 60), (None, 9)):
        rows.put(segment(size), asked=asked)
        made.append(num_updates(rows))

    assert made == [1, 2, 0, 3, 3], "3 for each 8 episodes, of as many rows as they have"


def test_whole_segments_give_the_same_orders_and_updates_by_rows_as_by_segments() -> None:
    counted = []
    for rows in (rows_over(Watched(), updates=3), by_rows(Watched(), updates=3, rows=4)):
        found = []
        for _ in range(5):
            found.append(rows.order(timeout_s=0.0).rows)
            found.append(rows.put(segment()).rows)
            rows.next(timeout_s=0.0)
            found.append(rows.order(timeout_s=0.0).rows)
            found.append(num_updates(rows))
        counted.append(found)

    assert counted[0] == counted[1]


def test_rows_of_random_actions_are_stored_and_allow_no_update() -> None:
    store = Watched()
    rows = by_rows(store, updates=2, rows=4)

    rows.put_random(segment(40))

    assert num_updates(rows) == 0 and rows.env_step == 40 and store.pushed_at == [40]
    assert rows.order(timeout_s=0.0).rows == 4


def test_rows_go_on_from_a_saved_state_with_the_part_of_an_update_that_was_left() -> None:
    rows = by_rows(Watched(), updates=1, rows=4)
    rows.put(segment(7))
    assert num_updates(rows) == 1

    again = by_rows(Watched(), updates=1, rows=4)
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


def test_a_store_is_told_the_env_step_the_iteration_and_whose_priorities_they_are() -> None:
    store = Watched()
    rows = rows_over(store, updates=1)
    rows.put(segment())
    rows.next(timeout_s=0.0)
    rows.feedback(4, priority=np.array([0.5, 2.0], np.float32), info=dict)

    assert store.pushed_at == [104] and store.sampled == [(6, 3)]
    (info,) = store.updates
    assert info["replay_buffer_idx"].tolist() == [0, 1] and info["replay_unique_id"].tolist() == [10, 11]
    assert info["priority"].tolist() == [0.5, 2.0]


def test_without_priorities_a_store_is_told_nothing() -> None:
    store = Watched()
    rows = rows_over(store, updates=1)
    rows.put(segment())
    rows.next(timeout_s=0.0)

    rows.feedback(4, priority=None, info=lambda: pytest.fail("nobody reads it here"))

    assert store.updates == []
