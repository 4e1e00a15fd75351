"""The short forms of the scenarios on live runs: pauses, lost answers, restarts, full disks, clocks that jump."""

from __future__ import annotations

import os

import pytest

from tests.chaos.__main__ import NEED_ROOT, SHORT

_LIVE = ("pauses", "lost_answers", "restarts", "disk_faults", "clock_jumps")


@pytest.mark.chaos
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [name for name in SHORT if name.startswith(_LIVE)])
def test_a_run_with_faults_keeps_rows_updates_and_fresh_weights(name: str) -> None:
    if name in NEED_ROOT and os.geteuid() != 0:
        pytest.fail(f"{name} mounts a small disk, which needs root")

    report = SHORT[name]()

    assert report.is_ok, report.table()
