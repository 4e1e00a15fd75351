"""How the rows of several workers become segments of one run, with the trajectories of each apart."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from ding_like.comm.channels import CollectRequest, Segment, Version
from ding_like.data.batch import TransitionBatch
from ding_like.pipeline.rows import Collected, RowReceiver


class Rows:
    """Rows of a run that keep what is put."""

    env_step = 0

    def __init__(self) -> None:
        self.batches: list[Any] = []

    def put(self, segment: Segment, *, asked: int) -> CollectRequest:
        self.batches.append(segment.batch)
        return CollectRequest(False, 8, 0, None)

    def put_random(self, segment: Segment) -> None:
        self.batches.append(segment.batch)


def intake(rows: Rows, *, follows_episodes: bool) -> RowReceiver:
    report: Any = SimpleNamespace(note=lambda *_: None, note_put=lambda **_: None, envstep=0, dropped_rows=0)
    found: Any = rows
    return RowReceiver(found, report, newest=lambda: Version(0, 0), follows_episodes=follows_episodes)


def part(worker: str, **columns: list[int]) -> Collected:
    batch = TransitionBatch({name: np.array(column, np.int64) for name, column in columns.items()})
    return Collected(worker, Segment(batch, Version(0, 0), len(batch)), 0.0, len(batch))


def episode_part(worker: str, episode: int, step: int) -> Collected:
    return part(worker, lane=[0, 0], env_id=[0, 0], episode_id=[episode] * 2, step=[step] * 2)


def joined(*parts: Collected) -> Any:
    rows = Rows()
    intake(rows, follows_episodes=False).put(parts, CollectRequest(False, 8, 0, None))
    return rows.batches[0]


def test_a_worker_keeps_its_lanes_and_its_episodes_keep_their_numbers() -> None:
    rows = Rows()
    taken = intake(rows, follows_episodes=True)

    taken.put_random([episode_part("a", 3, 0)])
    taken.put([episode_part("a", 3, 2), episode_part("b", 3, 0)], CollectRequest(False, 8, 0, None))
    taken.put([episode_part("b", 3, 2)], CollectRequest(False, 8, 0, None))

    lanes = [batch["lane"].tolist() for batch in rows.batches]
    assert lanes[0] == lanes[1][:2] == [0, 0]
    assert lanes[1][2:] == lanes[2] != [0, 0]
    assert all((batch["episode_id"] == 3).all() for batch in rows.batches)


def test_trajectories_of_several_workers_stay_apart_and_those_of_the_first_keep_their_numbers() -> None:
    rows = joined(
        part("1", lane=[0, 1, 0, 1], env_id=[0, 1, 0, 1], episode_id=[0, 1, 0, 5], reward=[1, 2, 3, 4]),
        part("2", lane=[0, 1, 0, 1], env_id=[0, 1, 0, 1], episode_id=[0, 1, 3, 1], reward=[5, 6, 7, 8]),
        part("3", lane=[0], env_id=[0], episode_id=[0], reward=[9]),
    )

    assert rows["lane"].tolist() == [0, 1, 0, 1, 2, 3, 2, 3, 4] == rows["env_id"].tolist()
    assert rows["episode_id"].tolist() == [0, 1, 0, 5, 6, 7, 9, 7, 10]
    assert rows["reward"].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_a_worker_that_returns_no_rows_does_not_bring_the_numbers_together() -> None:
    rows = joined(part("1", lane=[0, 1], reward=[1, 2]), part("2", lane=[], reward=[]), part("3", lane=[0], reward=[3]))

    assert rows["lane"].tolist() == [0, 1, 2]
