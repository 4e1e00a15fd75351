"""Two learners in two processes, each with half of every batch, learn what one learner with the whole learns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.learners.two_learners import CONFIGS, by_aggregator, by_serial

ROOT = Path(__file__).parents[3]
REPORT = ROOT / "docs/reports/two_learners.json"
CLOSE = 1e-6
UPDATES = 50
# What a learner logs of its own rows, so that it tells whose values are logged.
OF_ROWS = "q_value"
QUICK = ("dqn", "ppo")

pytestmark = pytest.mark.usefixtures("in_tmp")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CONFIGS]
)
def test_two_learners_of_a_parallel_run_equal_one(tmp_path: Path, name: str) -> None:
    found = by_aggregator(name, tmp_path, updates=UPDATES)

    assert found.updates >= UPDATES
    assert found.moved > 0.01, "it learned"
    assert found.largest_difference <= CLOSE
    assert found.largest_priority_difference <= 1e-5
    if name == "dqn":  # what is logged is of all learners, not of the first alone
        one, two = found.logged[OF_ROWS]
        assert two == pytest.approx(one, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_two_learners_that_join_by_themselves_equal_one(tmp_path: Path, name: str) -> None:
    found = by_serial(name, tmp_path, updates=UPDATES)

    assert found.updates >= UPDATES
    assert found.moved > 0.01, "it learned"
    assert found.largest_difference <= CLOSE


@pytest.mark.slow
def test_without_log_reduce_the_first_logs_its_own_half(tmp_path: Path) -> None:
    found = by_aggregator("dqn", tmp_path, updates=3, log_reduce=False)

    one, first = found.logged[OF_ROWS]
    assert abs(first - one) > 1e-4
    assert found.largest_difference <= CLOSE


def test_the_recorded_differences_hold() -> None:
    report: dict[str, Any] = json.loads(REPORT.read_text())

    assert report["largest_difference"].keys() == CONFIGS.keys()
    for ways in report["largest_difference"].values():
        assert ways.keys() == {"by_aggregator", "by_serial"}
        assert all(each["difference"] <= CLOSE and each["moved"] > 0.01 for each in ways.values())
