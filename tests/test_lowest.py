"""`make test-lowest` installs what setup.py calls the lowest."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def floors() -> dict[str, str]:
    """Return the lowest version of each package that setup.py asks for, but for tools that only test."""
    texts = [
        node.value for node in ast.walk(ast.parse((ROOT / "setup.py").read_text())) if isinstance(node, ast.Constant)
    ]
    found = [re.fullmatch(r"([A-Za-z0-9_-]+)>=([0-9.]+)", text) for text in texts if isinstance(text, str)]
    return {match[1].lower(): match[2] for match in found if match}


def padded(version: str) -> tuple[int, ...]:
    numbers = [int(number) for number in version.split(".")]
    return tuple(numbers + [0] * (4 - len(numbers)))


def test_the_lowest_versions_are_those_of_setup() -> None:
    lines = [line for line in (ROOT / "constraints-lowest.txt").read_text().splitlines() if not line.startswith("#")]
    pinned = dict(line.lower().split("==") for line in lines)
    del pinned["pyparsing"]  # is asked for by matplotlib, whose oldest version a newer one warns

    asked = {name: version for name, version in floors().items() if name in pinned}

    assert {name: padded(version) for name, version in asked.items()} == {
        name: padded(version) for name, version in pinned.items()
    }
    needed = re.search(r"install_requires=\[(.*?)\n    \]", (ROOT / "setup.py").read_text(), re.DOTALL)
    assert needed is not None
    names = {name.lower() for name in re.findall(r'"([A-Za-z0-9_-]+)>=', needed[1])}
    assert names - set(pinned) == {"torch"}
