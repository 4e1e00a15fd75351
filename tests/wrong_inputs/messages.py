"""Read what messages of the package tell users to type, out of its sources."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Text(NamedTuple):
    """One text of a source file. Where it is put together, "1" stands for the parts that only a run knows."""

    file: str
    line: int
    value: str


@cache
def texts() -> list[Text]:
    """Return every text of ding_like that is no docstring."""
    found: list[Text] = []
    for path in sorted((ROOT / "ding_like").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        skipped = {id(node) for node in _docstrings(tree)}
        found += [Text(str(path.relative_to(ROOT)), line, text) for line, text in _walk(tree, skipped)]
    return found


def _docstrings(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


def _walk(node: ast.AST, skipped: set[int]) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.JoinedStr):
        parts = [str(part.value) if isinstance(part, ast.Constant) else "1" for part in node.values]
        yield node.lineno, "".join(parts)
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
        yield node.lineno, node.value
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, skipped)


def commands() -> Iterator[tuple[Text, str]]:
    """Yield every `ding ...` command of a message: between back-ticks, or to the end of its line."""
    for text in texts():
        for found in re.finditer(r"`(ding [^`]+)`|(?:^|: |by  |with )(ding (?:-|[a-z])[^\n`;]*)", text.value):
            command = (found[1] or found[2]).strip(" .,)")
            yield text, re.split(r"(?:,|\s{2,}| or ding | to | and | \()", command)[0].strip(" .,")


def calls_of(name: str) -> Iterator[tuple[str, int, ast.Call]]:
    """Yield (file, line, call) of every call of a function of this name."""
    for path in sorted((ROOT / "ding_like").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", None)) == name:
                yield str(path.relative_to(ROOT)), node.lineno, node
