"""A short form of the kills on Ray; how long replacing takes is held to bars by `python -m tests.chaos`."""

from __future__ import annotations

import pytest

from tests.chaos.__main__ import SHORT
from tests.chaos.ray_kills import run_ray_kills

pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]


@pytest.mark.ray
@pytest.mark.parametrize("name", ["ray_kills_sync", "ray_kills_async"])
def test_workers_that_are_killed_and_stopped_take_no_row_and_no_batch_with_them(name: str) -> None:
    report = SHORT[name]()

    assert report.is_ok, report.table()


@pytest.mark.parametrize("collect", ["sync", "async"])
@pytest.mark.parametrize("gradients", ["sync", "async"])
def test_threads_that_are_lost_take_no_row_and_no_batch_with_them(collect: str, gradients: str) -> None:
    report = run_ray_kills(
        minutes=0.1, kills=6, stops=0, seed=1, gradients=gradients, collect=collect, timed=False, local=True
    )

    assert report.is_ok, report.table()
