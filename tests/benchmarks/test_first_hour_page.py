"""docs/from_sb3.md says what was recorded of the project that was done twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import first_hour_page
from benchmarks.first_hour.__main__ import PROJECTS, code_lines
from benchmarks.first_hour_page import NOT_YET, files, machine, table
from benchmarks.ray_page import fill


def done(seconds: float, difference: float) -> dict[str, Any]:
    return {
        "steps": [{"step": "train", "commands": 2, "s": seconds}, {"step": "film", "commands": 1, "s": 30.0}],
        "files": {"a.py": 10, "b.py": 5},
        "difference_after_resume": difference,
    }


def test_a_line_holds_a_step_of_both_and_the_last_ones_what_it_took() -> None:
    report = {"ours": done(30.0, 0.0), "sb3": done(90.0, 0.25)}

    assert table(report).splitlines()[2:] == [
        "| train | 2, 30.0 s | 2, 90.0 s |",
        "| film | 1, 30.0 s | 1, 30.0 s |",
        "| minutes in all | 1.0 | 2.0 |",
        "| commands typed | 3 | 3 |",
        "| lines of code written | 15 | 15 |",
        "| largest difference of a weight after the resume | 0 | 0.25 |",
    ]
    assert files(report) == "ours: `a.py` 10, `b.py` 5; SB3 and rl-zoo3: `a.py` 10, `b.py` 5"
    assert table({}) == files({}) == machine({}) == NOT_YET


def test_lines_of_code_leave_out_comments_docstrings_and_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "code.py"
    path.write_text(
        '"""Doc\nof two lines."""\n\n# a comment\nx = 1  # one\n\n\ndef f():\n    """Doc."""\n    return x\n'
    )

    assert code_lines(path) == 3


def test_both_do_the_same_steps() -> None:
    assert [step.name for step in PROJECTS["ours"]] == [step.name for step in PROJECTS["sb3"]]


def test_the_page_says_what_was_measured() -> None:
    page = first_hour_page.PAGE.read_text()

    assert fill(page, first_hour_page.parts()) == page
