"""docs/di_engine_stop_values.md says what was recorded."""

from __future__ import annotations

import json
from typing import Any

from benchmarks import stop_values_page
from benchmarks.ray_page import NOT_YET, fill
from benchmarks.stop_values_page import REPORT, is_with_switch, table
from tests.learning.stop_values import SEEDS, SWITCHES, TASKS


def row(seed: int, **said: Any) -> dict[str, Any]:
    return {
        "config": "a/b_config.py",
        "arguments": [],
        "seed": seed,
        "env_id": "E-v0",
        "stop_value": 195,
        "reached": True,
        "env_step": 1000 + seed,
        "fresh_value": 199.6,
        **said,
    }


def test_a_line_holds_all_seeds_of_a_file_and_a_switch() -> None:
    rows = [row(0), row(1, reached=False), row(0, arguments=["--di-engine"])]

    assert table(rows).splitlines()[2:] == [
        "| `b_config.py` | without | E-v0 | 195 | 1 of 2 | 1,000, 1,001 | 200, 200 |",
        "| `b_config.py` | with | E-v0 | 195 | 1 of 1 | 1,000 | 200 |",
    ]
    assert table([]) == NOT_YET


def test_the_page_says_what_was_measured() -> None:
    page = stop_values_page.PAGE.read_text()

    assert fill(page, stop_values_page.parts()) == page, "run python -m benchmarks.pages"


def test_every_file_was_run_from_every_seed_without_and_with_the_switch() -> None:
    runs = json.loads(REPORT.read_text())["runs"]

    found = [(run["config"], is_with_switch(run), run["seed"]) for run in runs]
    assert found == [
        (task.config, bool(switch), seed) for task in TASKS for switch in SWITCHES for seed in range(SEEDS)
    ]


def test_an_evaluation_of_a_run_that_reached_its_stop_value_says_so() -> None:
    for run in json.loads(REPORT.read_text())["runs"]:
        assert run["reached"] == (run["best_evaluation"] >= run["stop_value"]), run["config"]
