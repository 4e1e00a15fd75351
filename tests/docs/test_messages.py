"""The pages on messages quote the source: each text between backquotes that is a message is one of its strings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def strings_of(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of a module, with a zero byte in place of what is put into them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(v.value) if isinstance(v, ast.Constant) else "\0" for v in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


SOURCE = "\n\n".join(
    text for file in sorted((ROOT / "ding_like").rglob("*.py")) for text in strings_of(ast.parse(file.read_text()))
)


def first_cells(page: str) -> list[str]:
    rows = [line for line in (ROOT / "docs" / page).read_text().splitlines() if line.startswith("| ")]
    cells = [re.split(r"(?<!\\) \| ", row.removeprefix("| "))[0] for row in rows]
    return [cell for cell in cells if cell not in ("message", "what is seen")]


def is_in_source(message: str) -> bool:
    """Tell whether the parts of a message stand in one text of the source, one behind the other."""
    parts = [re.escape(part.strip()) for part in re.split(r"\.\.\.+", message) if len(part.strip(" .:;,'()")) > 0]
    return re.search(r"[^\n]*?".join(parts), SOURCE) is not None


MESSAGES = [cell.strip("`") for cell in first_cells("messages.md")]
QUOTED = [text for cell in first_cells("failures.md") for text in re.findall(r"`([^`]*)`", cell) if " " in text]


@pytest.mark.parametrize("message", [*MESSAGES, *QUOTED])
def test_a_message_of_the_pages_is_one_of_the_source(message: str) -> None:
    assert is_in_source(message), f"no text of the source has '{message}'"


def test_the_pages_have_as_many_messages_as_they_seem_to() -> None:
    assert len(MESSAGES) >= 35 and len(QUOTED) >= 7
    assert not is_in_source("a text that ... nobody has written")
