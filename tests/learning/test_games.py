"""Gates for games and teams: what was recorded meets the bars, and training meets them again."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from tests.learning.games import TASKS

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
