"""docs/seed.md says what was recorded, and says so where nothing was recorded yet."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks import seed_page
from benchmarks.ray_page import NOT_YET, fill
from benchmarks.seed_page import failures_table, inference_table, learning_table, parallel_table, runs_table
from benchmarks.table import BENCHMARKS
from ding_like.config.tree import leaves
from ding_like.pipeline.seed.settings import SeedSettings

NONE = {name: None for name in BENCHMARKS if name.startswith("seed_")}


def found(**values: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return rows of a result; a value is {metric: value or row}."""
    rows = {}
    for name, metrics in values.items():
        for metric, value in metrics.items():
            row = value if isinstance(value, dict) else {"value": value, "lo": value, "hi": value}
            rows[name.replace("__", " / "), metric] = row
    return rows


def test_the_page_says_what_was_measured() -> None:
    page = seed_page.PAGE.read_text()

    assert fill(page, seed_page.parts()) == page, "run python -m benchmarks.pages"
    assert sorted(re.findall(r"<!-- measured: (\w+) -->", page)) == sorted(seed_page.parts())


def test_what_was_not_recorded_yet_says_so() -> None:
    said = {inference_table(NONE), parallel_table(NONE), learning_table({}), runs_table(None), failures_table([])}

    assert said == {NOT_YET}


def test_a_row_of_inference_holds_the_ratio_its_bar_the_batch_and_both_latencies() -> None:
    ratio = {"value": 1.6, "lo": 1.52, "hi": 1.7, "bar": 1.5, "is_met": True}
    central = {"observations_cpu": 1180.0, "mean_batch": 12.66, "latency_p50": 12.0, "latency_p99": 31.25}
    result = found(
        ours_central=central,
        ours_central_waiting={**central, "observations_cpu": 1000.0},
        ours_local={"observations_cpu": 737.5, "latency_p50": 1.5, "latency_p99": 40.0},
        ours_central__ours_local={"observations_cpu": ratio},
        ours_central_waiting__ours_local={"observations_cpu": {**ratio, "value": 1.4, "is_met": False}},
    )

    lines = inference_table({**NONE, "seed_inference_cnn_16x1": result}).splitlines()

    end = "| 12.7 | 12.00, 31.25 | 1.50, 40.00 |"
    assert lines[2:] == [
        f"| CNN, 16 actors of 1 env, a process each | 1,180 | 738 | 1.60 (1.52 to 1.70) | at least 1.5: met {end}",
        "| CNN, 16 actors of 1 env, a process each, waiting up to 5 ms for all of them "
        f"| 1,000 | 738 | 1.40 (1.52 to 1.70) | at least 1.5: missed {end}",
    ]


def test_a_row_of_whole_runs_holds_the_ratio_and_the_updates_of_both() -> None:
    ratio = {"value": 0.95, "lo": 0.9, "hi": 1.0, "bar": 0.9, "is_met": True}
    rate = {"env_steps_wall": 400.0, "updates_per_step": 0.0312}
    result = found(
        ours_seed={**rate, "env_steps_wall": 380.0},
        ours_parallel_8x1=rate,
        ours_parallel_2x4=rate,
        ours_seed__ours_parallel_8x1={"env_steps_wall": ratio},
    )

    lines = parallel_table({**NONE, "seed_parallel": result}).splitlines()

    assert lines[2] == (
        "| mode parallel, 8 collectors of 1 env | 380 | 400 | 0.95 (0.90 to 1.00) | at least 0.9: met | 0.031, 0.031 |"
    )


def test_a_record_of_mode_seed_stands_beside_serials() -> None:
    record = {"median_eval_value": 500.0, "worst_eval_value": 480.2, "median_env_step": 9000, "runs": [{}, {}]}

    table = learning_table({"cartpole_rainbow_seed": record, "cartpole_rainbow": {"median_env_step": 6000}})

    assert table.splitlines()[-1] == "| Rainbow, CartPole | 2 | 500.0 | 480.2 | 9,000 | 6,000 | 1.50 |"


def test_a_long_run_is_a_row() -> None:
    run = {"what": "Pong", "env_step": 20000, "train_iter": 2300, "env_steps_per_s": 151.2, "eval_value": -20.5}
    run |= {"mean_batch": 5.66, "p50_ms": 9.0, "p99_ms": 30.0, "policy_lag": 4.0}

    table = runs_table({"runs": {"pong": run}})

    assert table.splitlines()[-1] == "| Pong | 20,000 | 2,300 | 151 | 5.7 | 9.0, 30.0 | 4.0 | -20.5 |"


def test_a_check_of_a_report_says_whether_it_is_met() -> None:
    checks = [
        {"what": "rows lost", "found": 0.0, "at_most": 0, "ok": True},
        {"what": "kills", "found": 10, "at_least": 12, "ok": False},
    ]

    assert failures_table([{"checks": checks}]).splitlines()[2:] == [
        "| rows lost | 0 | at most 0: met |",
        "| kills | 10 | at least 12: missed |",
    ]


def test_the_page_has_every_setting_with_its_default() -> None:
    page = seed_page.PAGE.read_text()

    for path, default in leaves(asdict(SeedSettings())):
        row = next((line for line in page.splitlines() if re.match(rf"\| (`\w+`, )?`{re.escape(path)}`", line)), None)
        assert row is not None, f"{path} is not on the page"
        keys, defaults = (cell.strip().split(", ") for cell in row.split("|")[1:3])
        assert defaults[keys.index(f"`{path}`")] == str(default), path


@pytest.mark.parametrize("path", seed_page.failures(), ids=lambda path: path.stem)
def test_every_report_that_is_on_the_page_says_its_commit(path: Path) -> None:
    assert json.loads(path.read_text()).get("commit")
