"""The page of the architecture names files, folders, classes and methods that there are."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "ding_like"
TEXT = (ROOT / "docs/architecture.md").read_text()
CODE = re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL))
PICTURE = "".join(re.findall(r"```(.*?)```", TEXT, re.DOTALL))
# What a run writes, or a user.
NOT_OURS = {"total_config.py"}


def test_every_path_is_there() -> None:
    words = [word for text in [*CODE, PICTURE] for word in re.findall(r"[\w./]+", text)]
    paths = {word for word in words if re.search(r"\w/|\.(py|txt|md)$", word)} - NOT_OURS

    # `worker/` stands alone in the picture, above `replay_buffer/`.
    gone = [
        path
        for path in paths
        if not any((folder / path).exists() for folder in (ROOT, PACKAGE, PACKAGE / "worker", PACKAGE / "pipeline"))
    ]
    assert len(paths) > 50 and not gone


def test_every_method_is_in_a_class_of_that_name() -> None:
    methods = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                methods |= {(node.name, each.name) for each in node.body if isinstance(each, ast.FunctionDef)}

    named = {match.groups() for text in CODE if (match := re.fullmatch(r"([A-Z]\w+)\.(\w+)", text))}
    assert len(named) > 25 and named <= methods


def test_every_class_and_function_is_in_the_code() -> None:
    source = "\n".join(file.read_text() for file in PACKAGE.rglob("*.py"))

    names = {text for text in CODE if re.fullmatch(r"[A-Z][a-z]\w+|[a-z]+_[a-z_]+", text)}
    assert len(names) > 25
    assert not [name for name in names if not re.search(rf"\b{name}\b", source)]
