"""The pages that lead by the hand: every block runs in the order in which it stands, and prints what the page shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.docs.walk import is_shown, own_modules, walk

DOCS = Path(__file__).parents[2] / "docs"
SHORT_HOUR = {"--env-step 10000": "--env-step 600", "3000": "600", "4000": "700", "-n 2": "-n 1"}
# Page -> what is shortened, and what it must leave behind.
WALKED = {
    "concepts.md": ({}, []),
    "first_hour.md": (
        {**SHORT_HOUR, "0..4 -j 2": "0", "--trials 10 -j 2": "--trials 1 -j 1"},
        ["slower/result.json", "point/agent.pt", "plain/report.html", "compare.png", "study/best_config.py"],
    ),
    "from_sb3.md": ({"env_step=20_000": "env_step=400, exp_name='dqn'"}, ["dqn/result.json"]),
    "from_cleanrl.md": ({"20000": "600 --exp-name dqn"}, ["dqn/result.json"]),
    "from_rllib.md": ({"10000": "400"}, ["ppo/result.json"]),
    "own_hook.md": ({}, ["halved/result.json"]),
    "own_buffer.md": ({}, ["recent/result.json"]),
    "own_loop.md": ({"max_env_step=20_000": "max_env_step=400"}, ["my_loop/metrics.jsonl", "my_loop/curve.png"]),
}


@pytest.mark.parametrize("name", WALKED)
@pytest.mark.timeout(120)
def test_every_block_of_the_page_runs_to_what_it_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced, files = WALKED[name]
    monkeypatch.chdir(tmp_path)

    with own_modules():
        walked = list(walk(DOCS / name, replaced=replaced))

    assert len(walked) >= 2
    assert [file for file in files if not (tmp_path / file).is_file()] == []
    for result in tmp_path.glob("*/result.json"):
        assert json.loads(result.read_text())["env_step"] > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_first_hour_with_its_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    with own_modules():
        list(walk(DOCS / "first_hour.md", replaced={**SHORT_HOUR, "0..4": "0,1", "--trials 10": "--trials 2"}))

    assert [(tmp_path / f"plain/seed{seed}/result.json").is_file() for seed in range(2)] == [True, True]


def test_an_output_that_differs_is_noticed() -> None:
    assert is_shown("one ... 3\nfour", "zero\none  2 3\nother\nfour\n")
    assert not is_shown("one ... 3\nfour", "four\none 2 3\n")
    assert not is_shown("one 3", "one 2")
