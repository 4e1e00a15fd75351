"""docs/ray.md says what was recorded, and says so where nothing was recorded yet."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import ray_page
from benchmarks.ray_page import NOT_YET, failures_table, fill, learning_table, rllib_table, serial_table
from benchmarks.table import BENCHMARKS

NONE = {name: None for name in BENCHMARKS if name.startswith("ray_")}


def found(**values: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return rows of a result; a value is {metric: value or row}."""
    rows = {}
    for name, metrics in values.items():
        for metric, value in metrics.items():
            row = value if isinstance(value, dict) else {"value": value, "lo": value, "hi": value}
            rows[name.replace("__", " / "), metric] = row
    return rows


def solved(seconds: float, *, lo: int, hi: int) -> dict[str, Any]:
    return {"cpu_to_475": seconds, "env_steps": 9000, "peak_memory": 500.0, "solved": {"value": hi, "lo": lo, "hi": hi}}


def test_the_page_says_what_was_measured() -> None:
    page = ray_page.PAGE.read_text()

    assert fill(page, ray_page.parts()) == page, "run python -m benchmarks.pages"
    assert page.count("<!-- measured: ray_") == 4


def test_what_was_not_recorded_yet_says_so() -> None:
    assert {rllib_table(NONE), serial_table(NONE), learning_table({}), failures_table([])} == {NOT_YET}


def test_a_row_beside_rllib_holds_both_the_ratio_and_its_bar() -> None:
    ratio = {"value": 0.1554, "lo": 0.15, "hi": 0.16, "bar": 0.2, "bar_is": "at most", "is_met": True}
    result = found(
        ours=solved(10.1, lo=1, hi=1),
        ours_standby=solved(12.0, lo=1, hi=1),
        rllib=solved(65.0, lo=1, hi=1),
        ours__rllib={"cpu_to_475": ratio},
    )

    table = rllib_table({**NONE, "ray_ppo_solve": result})

    assert (
        "| PPO until CartPole is solved, 2 workers: CPU-seconds, cluster start included | 10.1 | 65.0 "
        "| 0.16 (0.15 to 0.16) | at most 0.2: met |" in table
    )


@pytest.mark.parametrize(("lo", "hi", "said"), [(0, 0, "65.0, never solved"), (0, 1, "65.0, not always solved")])
def test_a_run_that_gave_up_says_so_beside_its_seconds(lo: int, hi: int, said: str) -> None:
    ours = solved(10.1, lo=1, hi=1)
    result = found(ours=ours, ours_standby=ours, rllib=solved(65.0, lo=lo, hi=hi))

    assert f"| 10.1 | {said} |" in rllib_table({**NONE, "ray_impala_solve": result})


def test_a_row_beside_serial_ends_with_the_start_up() -> None:
    ratio = {"value": 1.72, "lo": 1.7, "hi": 1.75, "bar": 1.7, "is_met": True}
    result = found(
        ours={"env_steps_wall": 1300.0, "startup": 6.04},
        ours_serial={"env_steps_wall": 760.0},
        ours__ours_serial={"env_steps_wall": ratio},
    )

    table = serial_table({**NONE, "ray_slow_env": result})

    assert "| CartPole with steps of 0.5 ms | 1,300 | 760 | 1.72 (1.70 to 1.75) | at least 1.7: met | 6.0 |" in table


def test_a_record_on_ray_stands_beside_serials() -> None:
    record = {"median_eval_value": 500.0, "worst_eval_value": 480.2, "median_env_step": 9000}

    table = learning_table({"cartpole_dqn_ray": record, "cartpole_dqn": {"median_env_step": 6000}})

    assert table.splitlines()[-1] == "| DQN | 500.0 | 480.2 | 9,000 | 6,000 | 1.50 |"


def test_a_row_of_a_report_is_held_to_the_figure_that_its_bar_is_of() -> None:
    row = {"what": "stop", "n": 400, "p50_ms": 8.25, "p95_ms": 20.0, "worst_ms": 61.0, "bar_ms": 50}

    table = failures_table([{"summary": [row, {**row, "bar_of": "p95_ms"}, {"what": "x", "n": 3, "count": "0 lost"}]}])

    assert table.splitlines()[-3:] == [
        "| stop | 400 | 8.2 | 20.0 | 61.0 | worst at most 50: missed |",
        "| stop | 400 | 8.2 | 20.0 | 61.0 | p95 at most 50: met |",
        "| x: 0 lost | 3 | | | | |",
    ]


def test_every_report_of_ray_is_on_the_page() -> None:
    recorded = {path.stem for pattern in ("ray_*.json", "chaos_ray_*.json") for path in ray_page.REPORTS.glob(pattern)}

    assert recorded <= set(ray_page.FAILURES)


def test_a_report_of_kills_says_what_was_lost_and_how_long_it_took() -> None:
    spread = {"count": 30, "median": 12.0, "p95": 40.0, "worst": 90.0}
    lost = [
        ("rows handed over and lost", 0.0),
        ("rows doubled, or from nowhere", 0.0),
        ("batches drawn and lost, whole or in part", 2.0),
        ("batches applied twice, or of no batch", 0.0),
    ]
    report = {
        "setting": {"kills": 30, "minutes": 5, "gradients": "sync"},
        "figures": {
            **dict.fromkeys(("kill_known_ms", "replaced_ms", "kill_to_work_of_the_next_ms"), spread),
            **{"rows": 120000, "updates": 9000},
        },
        "checks": [
            *({"what": what, "found": found, "at_most": 0} for what, found in lost),
            {"what": "kill to known, p95 ms", "found": 40.0, "at_most": 50},
        ],
    }

    lines = failures_table([report]).splitlines()

    assert lines[2] == (
        "| 30 workers killed in 5 minutes, gradients sync: 0 of 120,000 rows handed over lost, 0 doubled, "
        "2 of 9,000 batches lost, 0 trained on twice | 30 | | | | |"
    )
    assert lines[3] == "| a kill until it is known | 30 | 12.0 | 40.0 | 90.0 | p95 at most 50: met |"
    assert lines[4].endswith("| 12.0 | 40.0 | 90.0 |  |")
