"""What was recorded of the learning gates reaches their bars, and the index of the algorithms' pages shows it."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from benchmarks.pages import bar_of, index_row
from tests.learning.games import TASKS
from tests.learning.test_gates import DISTRIBUTED, ENVS, MOST, serial_of

DOCS = Path(__file__).parents[2] / "docs"
# An ablation's variants are on its page alone.
RECORDS = {
    path.stem: json.loads(path.read_text())
    for path in sorted((DOCS / "learning").glob("*.json"))
    if not path.stem.endswith("_ablation")
}


def test_the_index_shows_every_record() -> None:
    index = (DOCS / "algorithms/README.md").read_text()

    assert len(RECORDS) > 30 and [name for name, found in RECORDS.items() if index_row(found) not in index] == []


def test_records_of_env_gates_and_distributed_modes_reach_their_bars() -> None:
    wrong, recorded = [], [name for name in DISTRIBUTED if name in RECORDS]
    for name in [*ENVS, "lunarlander_cont_sac", "bipedalwalker_sac", "cartpole_hidden_r2d2_seed", *recorded]:
        found = RECORDS[name]
        if found["median_eval_value"] < bar_of(name):
            wrong.append(f"{name}: {found['median_eval_value']}, below {bar_of(name)}")
        if name in ENVS and found["most_env_steps"] > 1.01 * ENVS[name][2]:  # a batch is not cut short
            wrong.append(f"{name}: {found['most_env_steps']} env steps")
        if name in DISTRIBUTED and found["overrides"] != serial_of(name)["overrides"]:
            wrong.append(f"{name}: other overrides than serial")
        if name in ("cartpole_rainbow_seed", *(each for each in recorded if each.endswith("_ray"))):
            most = MOST * serial_of(name)["median_env_step"]
            wrong += [f"{name}: {found['median_env_step']} env steps"] * (found["median_env_step"] > most)

    assert len(recorded) >= 5 and wrong == []


ROOT = Path(__file__).parents[2]
REPORT: dict[str, Any] = json.loads((ROOT / "docs/reports/games.json").read_text())


def meets_its_bar(name: str, rows: list[dict[str, Any]]) -> bool:
    """Tell whether the median over seeds is good enough; an illegal move of any seed is too many."""

    def median(key: str) -> float:
        return statistics.median(row[key] for row in rows)

    bars = {
        "matrix": lambda: median("distance") <= 0.05,
        "matrix_parallel": lambda: median("distance") <= 0.05,
        "board": lambda: median("wins") >= 190 and all(row["illegal"] == 0 and row["games"] == 200 for row in rows),
        "spread": lambda: median("standard_errors_above") >= 3.0,
        "two_step": lambda: median("eval_value") == 8.0,
        "digits": lambda: median("accuracy") >= 0.97,
    }
    return bars[name]()


def test_what_was_recorded_meets_the_bars() -> None:
    missed = [name for name in TASKS if len(REPORT[name]["runs"]) != 3 or not meets_its_bar(name, REPORT[name]["runs"])]

    assert missed == []


@pytest.mark.learning
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", TASKS)
def test_three_seeds_meet_the_bar_again(name: str, in_tmp: Path) -> None:
    assert meets_its_bar(name, [TASKS[name](seed) for seed in range(3)])
