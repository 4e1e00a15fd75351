"""No block of code on any page is one that nobody runs: what each kind of block is, and which test runs it."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.docs.test_own_pages import PAGES as OWN_PAGES
from tests.docs.test_walked_pages import WALKED
from tests.docs.walk import blocks_of, commands_of

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
# Page -> how many blocks of Python, and the test that runs them.
PYTHON = {
    "README.md": (2, "test_examples.py"),
    "buffers.md": (1, "test_examples.py"),
    "environments.md": (3, "test_examples.py"),
    "seeds.md": (1, "test_examples.py"),
    "self_play.md": (2, "test_examples.py"),
    "serve.md": (3, "serve/test_page.py"),
    "weights.md": (4, "test_examples.py"),
}
# What is typed on a machine of its own, where nothing here could run it: the beginning of the line.
ELSEWHERE = (
    "export RAY_",
    "gunicorn ",
    "python -m pip",
    "ray start ",
    "sed -i ",
    "torchrun ",
    "umask 077",
)
WALKED_PAGES = {*WALKED, *OWN_PAGES}


def of_kind(page: Path, language: str) -> list[str]:
    return [block.text for block in blocks_of(page) if block.language == language]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_is_of_a_kind_that_a_test_runs(page: Path) -> None:
    kinds = Counter(block.language for block in blocks_of(page))

    assert set(kinds) <= {"", "python", "text", "console", "py"}, "a kind of block that no test knows"
    assert page.read_text().count("```") == 2 * sum(kinds.values()), "a block that is not closed, or indented"
    if page.name in WALKED_PAGES:
        return
    assert kinds["python"] == PYTHON.get(str(page.relative_to(ROOT)).removeprefix("docs/"), (0, ""))[0], (
        "Python that no test runs: see PYTHON"
    )
    assert not kinds["console"] and not kinds["py"], "of pages that are walked through only"
    if page.parent.name != "algorithms":
        assert [line for text in of_kind(page, "") for line in unknown_lines(text)] == []


def test_blocks_without_a_language_are_formulas_on_the_pages_of_algorithms() -> None:
    pages = sorted((ROOT / "docs/algorithms").glob("*.md"))
    lines = [line for page in pages for text in of_kind(page, "") for line in text.splitlines()]

    assert len(pages) > 20 and len(lines) > 60
    assert [line for line in lines if re.match(r"(\$ )?(ding|make|pip|python) ", line)] == []


def unknown_lines(text: str) -> list[str]:
    """Return the lines of a shell's block that are no command which is run or looked at here."""
    if text.startswith("$ "):  # a session: what follows a command is what it prints
        text = "\n".join(line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ "))
    commands = [part.strip() for line in commands_of(text) for part in line.split(" && ")]
    return [command for command in commands if not is_known(command)]


def is_known(command: str) -> bool:
    """Tell whether a command is one of `ding`, which test_examples.py runs, or names what there is."""
    if command.startswith("ding "):
        return True
    if (target := re.match(r"make ([\w-]+)$", command)) is not None:
        return re.search(rf"^{target[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE) is not None
    if (module := re.match(r"python -m ([\w.]+)", command)) is not None and module[1] != "pip":
        return importlib.util.find_spec(module[1]) is not None
    if (file := re.match(r"(?:bash|python) ([\w./]+)", command)) is not None:
        return (ROOT / file[1]).is_file()
    if command.startswith("pip install "):
        extras = re.findall(r"\[([\w,]+)\]", command)
        known = (ROOT / "setup.py").read_text()
        return all(f'"{extra}": [' in known for each in extras for extra in each.split(","))
    return command.startswith(("pytest", *ELSEWHERE))


def test_what_no_test_knows_is_noticed() -> None:
    assert unknown_lines("make no-such-target\nmake test\nding plot EXP\nrm -rf x\n") == [
        "make no-such-target",
        "rm -rf x",
    ]
    assert unknown_lines('pip install "ding-like[nothing]"\npython -m ding_like\n') == [
        'pip install "ding-like[nothing]"'
    ]


def test_every_policy_has_a_page() -> None:
    index = (ROOT / "docs/algorithms/README.md").read_text()
    pages = "\n".join(page.read_text() for page in sorted((ROOT / "docs/algorithms").glob("*.md")))
    policies = [file.stem for file in (ROOT / "ding_like/policy").glob("*.py") if registers(file)]

    assert len(policies) >= 18
    assert [name for name in policies if f"ding_like/policy/{name}.py" not in pages and f"`{name}`" not in pages] == []
    for page in (ROOT / "docs/algorithms").glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in index, "a page that the list does not name"


def registers(file: Path) -> bool:
    return "@POLICY_REGISTRY.register" in file.read_text()


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs/decisions"
    listed = re.findall(r"\((\d\d\d-[\w-]+\.md)\)", (folder / "README.md").read_text())

    assert listed == sorted(page.name for page in folder.glob("0*.md")) != []
