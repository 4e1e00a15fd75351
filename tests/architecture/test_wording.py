"""Docstrings and comments of the package and of the tests follow the style guide: noun phrases, and named actors."""

from __future__ import annotations

from pathlib import Path

from tests.architecture.lines import wording_faults

ROOT = Path(__file__).parents[2]
# The list of banned phrases itself.
LIST = ROOT / "tests" / "architecture" / "lines.py"
# Folders that are not read yet.
LEFT = (
    *("ding_like/agent", "ding_like/comm", "ding_like/pipeline", "ding_like/report"),
    *(
        f"tests/{name}"
        for name in "agent chaos comm contracts docs entry envs fresh_process.py learning pipeline policy report "
        "rl_utils serve simulation study worker wrong_inputs".split()
    ),
)


def test_docstrings_and_comments_name_their_actors() -> None:
    left = [ROOT / each for each in LEFT]
    files = [path for folder in ("ding_like", "tests") for path in sorted((ROOT / folder).rglob("*.py"))]

    faults = [
        f"{path.relative_to(ROOT)}:{line} {message}"
        for path in files
        if path != LIST and not any(path.is_relative_to(each) for each in left)
        for line, message in wording_faults(path.read_text("utf-8"))
    ]

    assert not faults, "\n" + "\n".join(faults)
