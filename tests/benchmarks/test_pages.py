"""The algorithms' pages say what was recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.pages import DOCS, draw, fill, load, table

PAGES = sorted((DOCS / "algorithms").glob("*.md"))
RECORD = {
    "episodes": 20,
    "runs": [
        {
            "seed": 0,
            "eval_value": 499.96,
            "env_step": 12345,
            "train_iter": 678,
            "wall_s": 4.4,
            "history": [[0, 9.0], [10, 400.0]],
        }
    ],
}


def test_a_row_holds_what_the_file_holds() -> None:
    assert table(RECORD).splitlines()[-1] == "| 0 | 500.0 | 12,345 | 678 | 4 |"


def test_what_stands_between_the_marks_is_written_afresh_and_the_rest_stays() -> None:
    page = "a\n<!-- recorded: cartpole_x -->\nold\n<!-- end of recorded -->\nb\n"

    filled = fill(page, {"cartpole_x": RECORD})

    assert filled.startswith("a\n") and filled.endswith("\nb\n") and "old" not in filled and "12,345" in filled
    assert fill(filled, {"cartpole_x": RECORD}) == filled


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_pages_are_up_to_date(path: Path) -> None:
    assert fill(path.read_text(), load()) == path.read_text(), "run python -m benchmarks.pages"


def test_every_record_is_on_a_page_with_its_picture() -> None:
    text = "".join(path.read_text() for path in PAGES)

    for name in load():
        assert f"<!-- recorded: {name} -->" in text, name
        assert (DOCS / "algorithms" / f"{name}.png").stat().st_size < 60_000


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    draw("cartpole_x", RECORD, tmp_path / "x.png")

    assert (tmp_path / "x.png").read_bytes()[:4] == b"\x89PNG"
