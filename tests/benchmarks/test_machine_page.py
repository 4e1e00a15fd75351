"""Pages say on which machine their figures were measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.machine_page import fill, machine_of, pages


def record(folder: Path, name: str, **last: Any) -> None:
    row = {"date": "2026-11-20", "system": "Linux x86_64", "processor": "AMD EPYC", "cpus": 2, **last}
    (folder / f"{name}.jsonl").write_text('{"name": "ours"}\n' + json.dumps(row) + "\n")


@pytest.mark.parametrize("page", pages(), ids=lambda path: path.name)
def test_the_page_says_where_its_figures_are_from(page: Path) -> None:
    text = page.read_text()

    assert fill(text) == text, "run python -m benchmarks.pages"
    assert "Not recorded yet" not in machine_of(name for name in text.partition("<!-- machine: ")[2].split()[:1])


def test_every_page_with_recorded_figures_is_among_them() -> None:
    assert {"buffers.md", "parallel.md", "ray.md", "seed.md", "several_learners.md", "weights.md"} <= {
        page.name for page in pages()
    }


def test_machines_and_dates_are_named_once(tmp_path: Path) -> None:
    record(tmp_path, "speed_a")
    record(tmp_path, "speed_b", date="2026-11-22")
    record(tmp_path, "other", processor="", cpus=16)

    assert machine_of(["speed_*"], results=tmp_path) == (
        "Measured on AMD EPYC with 2 cores, Linux x86_64; 2026-11-20 to 2026-11-22."
    )
    assert machine_of(["other"], results=tmp_path).startswith(
        "Measured on a processor that was not noted with 16 cores"
    )
    assert machine_of(["nothing"], results=tmp_path) == "Not recorded yet."


def test_what_stands_between_the_marks_is_written_afresh(tmp_path: Path) -> None:
    record(tmp_path, "speed")

    filled = fill("a\n<!-- machine: speed -->\nold\n<!-- end of machine -->\nb", results=tmp_path)

    sentence = machine_of(["speed"], results=tmp_path)
    assert filled == f"a\n<!-- machine: speed -->\n{sentence}\n<!-- end of machine -->\nb"
