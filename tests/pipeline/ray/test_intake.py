"""How the rows of several workers become one segment."""

from __future__ import annotations

from typing import Any

import numpy as np

from ding_like.comm.channels import Segment, Version
from ding_like.data.batch import TransitionBatch
from ding_like.pipeline.roles.intake import Collected, Intake
from tests.pipeline.ray.scripted import Scripted


class KeptBatches:
    """Be a store that keeps what it is given."""

    def __init__(self) -> None:
        self.batches: list[Any] = []

    def push(self, data: Any, cur_collector_envstep: int) -> None:
        self.batches.append(data)


def part(worker: int, **columns: list[int]) -> Collected:
    batch = TransitionBatch({name: np.array(column, np.int64) for name, column in columns.items()})
    segment = Segment(batch, Version(1, 0), len(batch), {}, {})
    return Collected(f"collector{worker}", segment, 0.0, len(batch))


def joined(*parts: Collected) -> Any:
    scripted, store = Scripted(), KeptBatches()
    scripted.rows._store = store
    Intake(scripted.rows, scripted.report, newest=scripted.newest).put(parts, scripted.rows.order(timeout_s=0.0))
    return store.batches[0]


def test_trajectories_of_several_workers_stay_apart_and_those_of_the_first_keep_their_numbers():
    rows = joined(
        part(1, lane=[0, 1, 0, 1], env_id=[0, 1, 0, 1], episode_id=[0, 1, 0, 5], reward=[1, 2, 3, 4]),
        part(2, lane=[0, 1, 0, 1], env_id=[0, 1, 0, 1], episode_id=[0, 1, 3, 1], reward=[5, 6, 7, 8]),
        part(3, lane=[0], env_id=[0], episode_id=[0], reward=[9]),
    )

    assert rows["lane"].tolist() == [0, 1, 0, 1, 2, 3, 2, 3, 4] == rows["env_id"].tolist()
    assert rows["episode_id"].tolist() == [0, 1, 0, 5, 6, 7, 9, 7, 10]
    assert rows["reward"].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_a_worker_that_returns_no_rows_does_not_bring_the_numbers_together():
    rows = joined(part(1, lane=[0, 1], reward=[1, 2]), part(2, lane=[], reward=[]), part(3, lane=[0], reward=[3]))

    assert rows["lane"].tolist() == [0, 1, 2]
