"""A buffer that follows episodes finds the rows of each worker apart from those of all others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from ding_like.comm.channels import Order, Segment, Version
from ding_like.data.batch import TransitionBatch
from ding_like.pipeline.roles.intake import Collected, Intake


class Rows:
    """Keep what is put, as a run's rows do."""

    env_step = 0

    def __init__(self) -> None:
        self.batches: list[Any] = []

    def put(self, segment: Segment, *, asked: int) -> Order:
        self.batches.append(segment.batch)
        return Order(False, 8, 0, None)

    def put_random(self, segment: Segment) -> None:
        self.batches.append(segment.batch)


def intake(rows: Rows, *, follows_episodes: bool) -> Intake:
    report: Any = SimpleNamespace(note=lambda *_: None, note_put=lambda **_: None, envstep=0, dropped_rows=0)
    found: Any = rows
    return Intake(found, report, newest=lambda: Version(0, 0), follows_episodes=follows_episodes)


def part(worker: str, episode: int, step: int) -> Collected:
    numbers = {"lane": 0, "env_id": 0, "episode_id": episode, "step": step}
    batch = TransitionBatch({name: np.array([value, value]) for name, value in numbers.items()})
    return Collected(worker, Segment(batch, Version(0, 0), 2), 0.0, 2)


def test_a_worker_keeps_its_lanes_and_its_episodes_keep_their_numbers() -> None:
    rows = Rows()
    taken = intake(rows, follows_episodes=True)

    taken.put_random([part("a", 3, 0)])
    taken.put([part("a", 3, 2), part("b", 3, 0)], Order(False, 8, 0, None))
    taken.put([part("b", 3, 2)], Order(False, 8, 0, None))

    lanes = [batch["lane"].tolist() for batch in rows.batches]
    assert lanes[0] == lanes[1][:2] == [0, 0]
    assert lanes[1][2:] == lanes[2] != [0, 0]
    assert all((batch["episode_id"] == 3).all() for batch in rows.batches)


def test_other_buffers_get_rows_as_before() -> None:
    rows = Rows()
    taken = intake(rows, follows_episodes=False)

    taken.put([part("a", 3, 2), part("b", 3, 0)], Order(False, 8, 0, None))

    assert rows.batches[0]["lane"].tolist() == [0, 0, 1, 1]
    assert rows.batches[0]["episode_id"].tolist() == [3, 3, 7, 7]
