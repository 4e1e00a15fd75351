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


def extras() -> dict[str, list[str]]:
    """Return the extras of setup.py, without running it."""
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EXTRAS":
            found: dict[str, list[str]] = ast.literal_eval(node.value)
            return found
    raise AssertionError("setup.py has no EXTRAS")


def test_every_extra_that_a_message_or_a_page_names_is_there() -> None:
    texts = [
        file.read_text()
        for folder in ("ding_like", "dizoo", "docs")
        for file in (ROOT / folder).rglob("*")
        if file.suffix in (".py", ".md")
    ]
    named = {
        extra
        for text in [*texts, (ROOT / "README.md").read_text()]
        for group in re.findall(r"ding-like\[([a-z0-9_,]+)\]", text)
        for extra in group.split(",")
    }

    assert len(named) > 5 and named <= set(extras())


def test_the_suite_installs_what_the_env_suites_need() -> None:
    found = extras()

    missing = {
        extra: sorted(set(found[extra]) - set(found["test"]))
        for extra in ("atari", "box2d", "dmc", "minatar", "minigrid", "mpe", "pettingzoo")
    }
    # `make setup` asks for the extra `classic`, and gymnasium's suites for the same pygame.
    assert {extra: left for extra, left in missing.items() if left} == {
        "box2d": ["pygame-ce>=2.5"],
        "pettingzoo": ["pygame-ce>=2.5"],
    }
