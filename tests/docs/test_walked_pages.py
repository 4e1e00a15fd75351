"""The pages that lead by the hand: every block runs in the order in which it stands, and prints what the page shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.docs.walk import is_shown, own_modules, walk

DOCS = Path(__file__).parents[2] / "docs"
# Page -> what is shortened, and what it must leave behind.
WALKED = {
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
        blocks = list(walk(DOCS / name, replaced=replaced))

    assert len(blocks) >= 2
    assert [file for file in files if not (tmp_path / file).is_file()] == []
    for result in tmp_path.glob("*/result.json"):
        assert json.loads(result.read_text())["env_step"] > 0


def test_an_output_that_differs_is_noticed() -> None:
    assert is_shown("one ... 3\nfour", "zero\none  2 3\nother\nfour\n")
    assert not is_shown("one ... 3\nfour", "four\none 2 3\n")
    assert not is_shown("one 3", "one 2")
