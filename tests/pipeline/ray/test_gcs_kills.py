"""A run on Ray whose head is killed saves, says how to go on, and goes on; and the audit of that can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.ray.gcs_kills import Kill, is_ok, kill_heads, summary

GOOD = [Kill(1.0, 5.0, 1, True, 100, 0), Kill(1.0, 7.0, 1, True, 250, 0)]


def test_kills_with_the_promised_end_are_good() -> None:
    assert is_ok(GOOD, kills=2, goes_on=True)
    times, counts = summary(GOOD, kills=2, goes_on=True)

    assert (times["p50_ms"], times["worst_ms"], times["n"]) == (7000.0, 7000.0, 2)
    assert counts["count"] == "2 points, 2 clean ends, done"


@pytest.mark.parametrize(
    "fault",
    [
        {"end_s": float("nan")},
        {"end_s": 61.0},
        {"has_line": False},
        {"env_step": 100},
        {"env_step": -1},
        {"left": 1},
        {"status": -11},
        {"status": 0},
    ],
)
def test_a_kill_with_another_end_is_told(fault: dict[str, float]) -> None:
    assert not is_ok([GOOD[0], GOOD[1]._replace(**fault)], kills=2, goes_on=True)  # type: ignore[arg-type]


def test_a_run_that_does_not_go_on_is_told() -> None:
    assert not is_ok(GOOD, kills=2, goes_on=False) and not is_ok(GOOD, kills=3, goes_on=True)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_whose_head_is_killed_goes_on(tmp_path: Path) -> None:
    found, goes_on = kill_heads(tmp_path, kills=2, seed=0)

    assert is_ok(found, kills=2, goes_on=goes_on), found
