"""The short forms of the scenarios; the whole ones are run by `python -m tests.chaos`."""

from __future__ import annotations

import os

import pytest

from tests.chaos.__main__ import NEED_ROOT, SHORT
from tests.chaos.seed_child import SeedRecorder

_LIVE = ("pauses", "lost_answers", "restarts", "disk_faults", "clock_jumps")


@pytest.mark.chaos
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [name for name in SHORT if name.startswith(_LIVE)])
def test_a_run_with_faults_keeps_rows_updates_and_fresh_weights(name: str) -> None:
    if name in NEED_ROOT and os.geteuid() != 0:
        pytest.fail(f"{name} mounts a small disk, which needs root")

    report = SHORT[name]()

    assert report.is_ok, report.table()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_servers_and_actors_that_are_killed_take_no_acknowledged_row_with_them() -> None:
    report = SHORT["seed_kills"]()

    assert report.is_ok, report.table()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_slow_learner_keeps_its_memory_and_lets_actors_wait() -> None:
    report = SHORT["seed_slow_learner"]()

    assert report.is_ok, report.table()


@pytest.mark.parametrize(
    ("acknowledged", "wrong"),
    [
        ([(1, 1), (1, 2), (1, 3)], 0),
        ([(1, 1), (2, 1), (2, 2)], 0),  # the source was started again
        ([(1, 1), (1, 3)], 1),
        ([(1, 1), (1, 1)], 1),
        ([(1, 2), (1, 3)], 1),
        ([(2, 1), (1, 1)], 1),  # of an earlier run, after one of a later run
        ([(1, 1), (2, 2)], 1),
    ],
)
def test_segments_out_of_order_are_counted(acknowledged: list[tuple[int, int]], wrong: int) -> None:
    recorder = SeedRecorder()
    recorder.acknowledged = [("actor1", *each, 0.0) for each in acknowledged]

    assert recorder.out_of_order == wrong
