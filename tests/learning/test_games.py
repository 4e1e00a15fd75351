"""Gates for games and teams: what was recorded meets the bars, the pages say so, and training meets them again."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from tests.learning.games import TASKS

ROOT = Path(__file__).parents[2]
REPORT: dict[str, Any] = json.loads((ROOT / "docs/reports/games.json").read_text())
PAGES = {name: (ROOT / "docs" / name).read_text() for name in ("self_play.md", "algorithms/qmix.md")}


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


@pytest.mark.parametrize("name", TASKS)
def test_what_was_recorded_meets_the_bar(name: str) -> None:
    rows = REPORT[name]["runs"]

    assert len(rows) == 3 and meets_its_bar(name, rows)


def test_the_pages_say_what_was_recorded() -> None:
    rows = []
    for seed in range(3):
        serial, parallel = REPORT["matrix"]["runs"][seed], REPORT["matrix_parallel"]["runs"][seed]
        board, digits = REPORT["board"]["runs"][seed], REPORT["digits"]["runs"][seed]
        mixture = ", ".join(f"{each:.3f}" for each in serial["mixture"])
        rows.append(
            f"| {seed} | ({mixture}), {serial['distance']:.3f} | {parallel['distance']:.3f} | "
            f"{board['wins']}, {board['draws']}, {board['losses']} | {board['illegal']} of {board['moves']} | "
            f"{digits['accuracy']:.4f} |"
        )
    teams = []
    for seed in range(3):
        spread, two_step = REPORT["spread"]["runs"][seed], REPORT["two_step"]["runs"][seed]
        teams.append(
            f"| {seed} | {spread['eval_value']:.1f} | {spread['random_value']:.1f} | "
            f"{spread['standard_errors_above']:.0f} | {two_step['eval_value']:.0f} |"
        )

    assert [row for row in rows if row not in PAGES["self_play.md"]] == []
    assert [row for row in teams if row not in PAGES["algorithms/qmix.md"]] == []


@pytest.mark.learning
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", TASKS)
def test_three_seeds_meet_the_bar_again(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert meets_its_bar(name, [TASKS[name](seed) for seed in range(3)])
