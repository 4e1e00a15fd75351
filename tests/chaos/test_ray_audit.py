"""The audit of a Ray run finds lost, doubled and unknown rows and updates; made-up rows stand for the run."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.chaos.counting_env import checksum, recognise
from tests.chaos.ray_audit import Rows, Updates, audit_rows, audit_updates


def keys(uid: int, number: int = 8) -> Any:
    """Return the keys of steps of one episode of an env with that number."""
    whole = np.array([[uid, 1, 1, step] for step in range(number + 1)], np.uint64)
    obs = (np.column_stack([whole, checksum(whole)]) / 2.0**24).astype(np.float32)
    found = recognise({"obs": obs[:-1], "next_obs": obs[1:], "action": np.zeros(number), "reward": np.zeros(number)})
    assert found.torn == 0
    return found.keys


def test_rows_that_are_lost_doubled_or_unknown_are_found() -> None:
    segments = [keys(uid) for uid in range(5)]
    stored = np.concatenate(segments)

    assert audit_rows(segments, stored) == Rows(40, 40, 0, 0, 0, 0)
    assert audit_rows(segments, stored[np.arange(40) != 17]).lost == 1
    assert audit_rows(segments, np.concatenate([*segments[:2], *segments[3:]])).lost == 8
    part_of_the_last, last_two_waiting = audit_rows(segments, stored[:39]), audit_rows(segments, stored[:24])
    assert (part_of_the_last.lost, part_of_the_last.waiting) == (1, 0)
    assert (last_two_waiting.lost, last_two_waiting.waiting) == (0, 16)
    strange = audit_rows(segments, np.concatenate([stored, segments[1][:3], keys(77, 2)]))
    assert (strange.doubled, strange.unknown) == (3, 2)


def test_updates_that_are_lost_doubled_or_changed_are_found() -> None:
    drawn = np.random.default_rng(0).integers(-512, 512, (20, 16)) / 64.0
    changed = drawn.copy()
    changed[3] += 1 / 64

    assert audit_updates(drawn, drawn[::-1]) == Updates(20, 20, 0, 0)
    assert audit_updates(drawn, drawn[1:]) == Updates(20, 19, 1, 0)
    assert audit_updates(drawn, np.concatenate([drawn, drawn[:1]])) == Updates(20, 21, 0, 1)
    assert audit_updates(drawn, changed) == Updates(20, 20, 1, 1)
