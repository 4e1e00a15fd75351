"""Run all blocks of a page from its top to its end, as a reader does who types them into one folder.

A Python block whose first line is `# NAME.py` is written to that file, any other is executed; all of a page share their
names. A block without a language is a shell's: each line is run here, in this process. A block `text` is what the block
before it prints, where `...` stands for what differs from run to run.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ding_like.entry import cli

_BLOCK = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
NOT_HERE = re.compile(r"pip install |ding --version$|python cleanrl/|ding -m ray ")
_NAME = re.compile(r"# ([\w/]+\.py)\n")


class Block(NamedTuple):
    """Fenced block: its language ("" for a shell's), and its text."""

    language: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of a page in their order."""
    return [Block(match[2].strip(), match[3]) for match in _BLOCK.finditer(page.read_text(encoding="utf-8"))]


def walk(page: Path, *, replaced: dict[str, str], names: dict[str, Any] | None = None) -> Iterator[tuple[Block, str]]:
    """Run the blocks of a page in the working folder; yield each with what it printed.

    `replaced` shortens what would take long: texts of blocks -> what stands there instead; `names` receives the names
    of the Python blocks. Raises AssertionError where a block prints something else than the page shows, or a text of
    `replaced` is nowhere.
    """
    names = {} if names is None else names
    printed, unused = "", set(replaced)
    for block in blocks_of(page):
        text = block.text
        for old, new in replaced.items():
            if old in text:
                unused.discard(old)
                text = text.replace(old, new)
        if block.language == "text":
            assert is_shown(text, printed), f"{page.name} shows\n{text}\nbut the block before it printed\n{printed}"
        elif block.language == "python":
            printed = _run_python(text, names)
        elif block.language == "py":
            assert page.name.startswith("from_"), "`py` is another library's code, which is not installed here"
        elif block.language == "console":  # for a machine of its own: an installation
            assert all(NOT_HERE.match(line) for line in commands_of(text)), text
        elif block.language == "":
            printed = "".join(_run_line(line) for line in commands_of(text))
        else:
            raise AssertionError(f"{page.name} has a block of '{block.language}', which nothing runs")
        yield block, printed
    assert not unused, f"{page.name} has no longer {sorted(unused)}"


def is_shown(shown: str, printed: str) -> bool:
    """Tell whether lines of a page stand in what was printed, one after the other."""
    lines = iter(printed.splitlines())
    return all(any(_is_like(expected, line) for line in lines) for expected in shown.splitlines() if expected.strip())


def _is_like(expected: str, line: str) -> bool:
    pattern = ".*".join(re.escape(" ".join(part.split())) for part in expected.split("..."))
    return re.fullmatch(pattern.replace(r"\ .*", ".*"), " ".join(line.split())) is not None


def commands_of(text: str) -> list[str]:
    """Return the command lines of a shell's block, without comments; a backslash at its end continues a line."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line for line in (re.sub(r"(^|\s)#.*", "", line).strip() for line in lines) if line]


def _run_python(text: str, names: dict[str, Any]) -> str:
    named = _NAME.match(text)
    if named is not None:
        Path(named[1]).write_text(text, encoding="utf-8")
        return ""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(text, "page", "exec"), names)
    return out.getvalue()


def _run_line(line: str) -> str:
    command, *arguments = shlex.split(line)
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        if command == "ding":
            _run_ding(arguments)
        elif command == "python":
            runpy.run_path(arguments[0], run_name="__main__")
        elif command == "ls":
            print(*sorted(os.listdir(*arguments)), sep="\n")
        else:
            raise AssertionError(f"nothing here runs '{line}'")
    return out.getvalue()


def _run_ding(arguments: list[str]) -> None:
    try:
        cli.main(arguments)
    except SystemExit as stop:
        if stop.code:
            raise AssertionError(f"ding {shlex.join(arguments)} ended with {stop.code}") from stop


@contextlib.contextmanager
def own_modules() -> Iterator[None]:
    """Forget afterwards the modules that were imported within."""
    before = set(sys.modules)
    path = list(sys.path)
    sys.path.insert(0, "")
    try:
        yield
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None) or ""
            if not file.startswith((sys.prefix, str(Path(__file__).parents[2]))):
                del sys.modules[name]
