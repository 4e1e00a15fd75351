"""Notebooks are kept without outputs, run from top to bottom, and show what their text claims."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def value_of(run: Path) -> float:
    return float(json.loads((run / "result.json").read_text())["eval_value"])


def is_solved(folder: Path) -> bool:
    return value_of(folder / "first") >= 475


def is_better_with_a_longer_view(folder: Path) -> bool:
    short, long = ([value_of(folder / f"discount_{each}_seed{seed}") for seed in range(3)] for each in (0.0, 0.95))
    return min(long) > 85 > sum(short) / 3


def falls_with_few_demonstrations(folder: Path) -> bool:
    return value_of(folder / "clone_demos") >= 475 > 400 > value_of(folder / "clone_few")


# What the text of each claims, in the folder that it has written.
CLAIMS: Sequence[Callable[[Path], bool]] = (is_solved, is_better_with_a_longer_view, falls_with_few_demonstrations)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path: Path) -> None:
    notebook = read(path)

    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == [] and cell.execution_count is None, "clear all outputs, then save"
    assert set(notebook.metadata) == {"kernelspec", "language_info"} and notebook.metadata.kernelspec.name == "python3"
    assert path.stat().st_size < 20_000


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_a_notebook_names_is_there(path: Path) -> None:
    text = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")

    named = [FOLDER / link for link in re.findall(r"\]\(([^)]+)\)", text)]
    named += [FOLDER.parent / page for page in re.findall(r"`(docs/[^`]+)`", text)]
    assert all(each.is_file() for each in named)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("path", "holds"), list(zip(NOTEBOOKS, CLAIMS, strict=True)), ids=[p.stem for p in NOTEBOOKS])
def test_a_notebook_runs_and_shows_what_it_claims(
    path: Path, holds: Callable[[Path], bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")  # for its `!ding` lines
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parent))
    shutil.copy(path, tmp_path)

    command = [sys.executable, "-m", "jupyter", "execute", "--timeout=120", "--output=run.ipynb", path.name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)

    assert done.returncode == 0, done.stderr[-3000:]
    assert holds(tmp_path)
    outputs = [out for cell in read(tmp_path / "run.ipynb").cells for out in cell.get("outputs", ())]
    assert not [out for out in outputs if "Traceback" in out.get("text", "")]
