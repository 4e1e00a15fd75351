"""Recorded results: which seeds are missing, how one comes into its file, and the page that shows the files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from benchmarks.results_page import GROUPS, fill, load, table
from tests.learning import learn
from tests.learning.learn import BUDGETS, ROOT, Budget, missing, with_seed


def part(seed: int, value: float = 1.0, *, env_step: int = 100) -> dict[str, Any]:
    head = dict(config="c.py", mode="serial", overrides=[], episodes=20, limit_env_step=env_step, commit="abc")
    return {**head, "runs": [dict(seed=seed, eval_value=value)]}


def test_a_seed_joins_the_others_and_replaces_its_own() -> None:
    found = with_seed(with_seed(with_seed(None, part(1)), part(0)), part(1, 2.0))

    assert [(row["seed"], row["eval_value"], row["commit"]) for row in found["runs"]] == [
        (0, 1.0, "abc"),
        (1, 2.0, "abc"),
    ]


def test_a_seed_of_another_budget_does_not_join() -> None:
    assert [row["seed"] for row in with_seed(with_seed(None, part(0)), part(1, env_step=200))["runs"]] == [1]


def test_seeds_without_a_row_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learn, "RESULTS", tmp_path)
    monkeypatch.setitem(BUDGETS, "one", Budget("c.py", 100))
    (tmp_path / "one.json").write_text(json.dumps(with_seed(None, part(1))))

    assert missing("one", again=False) == [0, 2] and missing("one", again=True) == [0, 1, 2]


@pytest.mark.parametrize(
    ("code", "message"),
    [("import sys; sys.exit('no')", "no"), ("import threading; threading.Event().wait()", "not done after")],
)
def test_a_run_that_fails_or_hangs_is_named(
    code: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Budget, "command", lambda *args: [sys.executable, "-c", code])
    monkeypatch.setattr(learn, "RESULTS", tmp_path)
    monkeypatch.setattr(learn, "MOST_S", 2.0)

    error = learn.learn("pong_ppo", 0, Lock())

    assert error is not None and error.startswith("pong_ppo, seed 0: ") and message in error
    assert list(tmp_path.iterdir()) == []


def test_every_budget_is_of_a_config_that_is_there() -> None:
    wrong = [name for name, one in BUDGETS.items() if one.mode != "sb3" and not (ROOT / "dizoo" / one.config).exists()]

    assert wrong == [] and {name for group in GROUPS.values() for name in group.names} == set(BUDGETS)


def test_the_page_shows_what_the_files_hold() -> None:
    page = (ROOT / "docs/results.md").read_text()

    assert page == fill(page, load())
    assert "not recorded yet" in table(["pong_ppo"], {})
