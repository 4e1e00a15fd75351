"""What policies end at in games whose best return is known, and what was recorded of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.teams_page import returns, values
from tests.learning.matrix_games import GAMES, RESULT, RUNS, play

REPORT: dict[str, Any] = json.loads(RESULT.read_text())


def ends(game: str, name: str) -> list[float]:
    return [run["return"] for run in REPORT[game]["policies"][name]["runs"]]


def test_a_sum_of_values_cannot_say_what_trust_is_worth_and_a_mixer_can() -> None:
    assert set(ends("two_step", "vdn")) == {7.0}
    assert set(ends("two_step", "qmix")) == {8.0}


def test_where_the_best_has_bad_neighbours_values_that_are_not_limited_find_it() -> None:
    for name in ("vdn", "qmix"):
        assert max(ends("nonmonotonic", name)) == 0.0, name
    for name in ("cw_qmix", "ow_qmix", "qtran"):
        assert set(ends("nonmonotonic", name)) == {8.0}, name


def test_everything_is_recorded_of_at_least_three_seeds() -> None:
    assert set(REPORT) == set(GAMES)
    for game, found in REPORT.items():
        assert found["best"] == GAMES[game].best and set(found["policies"]) >= set(RUNS), game
        assert all(len(each["runs"]) >= 3 for each in found["policies"].values()), game


def test_the_page_shows_bold_where_all_seeds_reach_the_best_return() -> None:
    found = {
        "best": 8.0,
        "policies": {
            "vdn": {"runs": [{"return": 0.0, "values": [[1.0, 2.0], [3.0, 4.0]]}, {"return": 8.0}]},
            "qtran": {"runs": [{"return": 8.0}, {"return": 8.0}]},
        },
    }

    assert returns({"game": found}).splitlines()[2:] == ["| `vdn` | 0, 8 |", "| `qtran` | **8, 8** |"]
    assert values(found).splitlines()[2:] == ["| 0 | 1.0, 2.0 |", "| 1 | 3.0, 4.0 |"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "game", "wanted"),
    [
        ("vdn", "two_step", 7.0),
        ("vdn", "monotonic", 8.0),
        ("qmix", "two_step", 8.0),
        ("qmix", "nonmonotonic", 0.0),
        ("cw_qmix", "nonmonotonic", 8.0),
        ("ow_qmix", "nonmonotonic", 8.0),
        ("qtran", "nonmonotonic", 8.0),
        ("coma", "monotonic", 8.0),
    ],
)
@pytest.mark.usefixtures("in_tmp", "no_pictures")
def test_a_policy_learns_what_it_can_represent(name: str, game: str, wanted: float) -> None:
    assert play(name, game, 0)["return"] == wanted
