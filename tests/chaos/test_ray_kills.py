"""A short form of the kills on Ray; how long replacing takes is held to bars by `python -m tests.chaos`."""

from __future__ import annotations

import pytest

from tests.chaos.__main__ import SHORT

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(420)]


@pytest.mark.parametrize("name", ["ray_kills_sync", "ray_kills_async"])
def test_workers_that_are_killed_and_stopped_take_no_row_and_no_batch_with_them(name: str) -> None:
    report = SHORT[name]()

    assert report.is_ok, report.table()
