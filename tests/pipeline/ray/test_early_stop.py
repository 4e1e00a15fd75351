"""What is measured of stopping collectors early: the same script over threads, short."""

from __future__ import annotations

from pathlib import Path

import pytest

from ding_like.comm.workers.threads import ThreadHost
from tests.pipeline.ray.early_stop import SHARE, measure_slow, measure_stops, spread, summary_of


@pytest.mark.slow
def test_a_slow_worker_is_ended_early_with_what_it_has_and_only_where_that_is_wanted(tmp_path: Path) -> None:
    host = ThreadHost()
    try:
        found = measure_slow(host, tmp_path, rounds=2)
    finally:
        host.close()

    assert found["one slow, all waited for"]["rows"] == [[SHARE] * 4]
    assert len(found["one slow"]["rows"]) == len(found["alike"]["rows"]) == 2
    for *finished, slow in found["one slow"]["rows"]:
        assert finished == [SHARE] * 3 and 1 <= slow < SHARE // 2
    assert found["one slow, all waited for"]["seconds"][0] > 3 * max(found["one slow"]["seconds"])


def test_each_stop_brings_the_rows_of_each_worker_back(tmp_path: Path) -> None:
    host = ThreadHost()
    try:
        times_ms = measure_stops(host, tmp_path, stops=2)
    finally:
        host.close()

    assert len(times_ms) == 4 and min(times_ms) > 0


def test_the_bar_of_a_slow_worker_follows_from_rounds_without_one() -> None:
    slow = {"alike": {"seconds": [0.4, 0.5, 0.3]}, "one slow": {"seconds": [0.5, 0.45, 0.44]}}

    stop, alike, one_slow = summary_of([5.0, 20.0, 60.0], slow)

    assert (stop["p50_ms"], stop["worst_ms"], stop["bar_ms"]) == (20.0, 60.0, 50.0)
    assert "bar_ms" not in alike and (one_slow["bar_ms"], one_slow["bar_of"]) == (480.0, "p50_ms")
    assert one_slow["p50_ms"] == 450.0 and spread([1.0])["p95_ms"] == 1.0
