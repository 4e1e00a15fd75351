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


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", CONFIGS)
def test_two_learners_of_a_parallel_run_equal_one(tmp_path: Path, name: str) -> None:
    found = by_aggregator(name, tmp_path, updates=UPDATES)

    assert found.updates >= UPDATES
    assert found.moved > 0.01, "it learned"
    assert found.largest_difference <= CLOSE
    assert found.largest_priority_difference <= 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_two_learners_that_join_by_themselves_equal_one(tmp_path: Path, name: str) -> None:
    found = by_serial(name, tmp_path, updates=UPDATES)

    assert found.updates >= UPDATES
    assert found.moved > 0.01, "it learned"
    assert found.largest_difference <= CLOSE


# What a learner logs of its own rows, so that it tells whose values are logged.
OF_ROWS = "q_value"


def test_what_is_logged_is_of_all_learners(tmp_path: Path) -> None:
    found = by_aggregator("dqn", tmp_path, updates=3)

    one, two = found.logged[OF_ROWS]
    assert two == pytest.approx(one, abs=1e-5)


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
