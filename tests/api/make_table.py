"""Read DI-engine's API page of `ding.worker`, saved as text, into worker_api.json beside this file.

    python tests/api/make_table.py PAGE

The page has one block per name: the name or signature, lines that mark it (`classmethod`, `property`, ...), the sign
"¶", prose. A class block begins its prose with "Bases: ...". Classes come first, then functions; nothing marks where
the last class ends, except that its prose names its methods ("Interfaces: ...").
"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

TABLE = Path(__file__).with_name("worker_api.json")
MARKS = frozenset(("classmethod", "staticmethod", "abstractmethod", "property", "writable"))


class Block(NamedTuple):
    """Name on the page: `params` is None for classes and properties."""

    name: str
    params: list[str] | None
    marks: list[str]
    prose: str


def make_table(page: str) -> dict[str, Any]:
    """Return {"classes": {name: {"bases", "members"}}, "functions": {name: params}}, in the order of the page.

    A member is {"params": [...]} or {} for a property, with "marks" where it has any. A parameter is written as in a
    signature: "cfg", "drop_extra=True", "*args".
    """
    blocks = read_blocks(page)
    last_class = max(i for i, block in enumerate(blocks) if block.prose.startswith("Bases: "))
    methods_of_last = set(re.findall(r"\w+", blocks[last_class].prose))
    classes: dict[str, Any] = {}
    functions: dict[str, list[str] | None] = {}
    members: dict[str, Any] = {}
    for i, block in enumerate(blocks):
        if block.prose.startswith("Bases: "):
            members = {}
            bases = block.prose.splitlines()[0].removeprefix("Bases: ").split(", ")
            classes[block.name] = {"bases": bases, "members": members}
        elif i > last_class and block.name not in methods_of_last:
            functions[block.name] = block.params
        else:
            members[block.name] = _describe_member(block)
    return {"classes": classes, "functions": functions}


def _describe_member(block: Block) -> dict[str, Any]:
    params = {} if block.params is None else {"params": block.params}
    return params | ({"marks": block.marks} if block.marks else {})


def read_blocks(page: str) -> list[Block]:
    """Return the page's blocks, without that of the module itself."""
    lines = page.splitlines()
    heads = [_head_of(lines, i) for i, line in enumerate(lines) if line == "¶"]
    ends = [start for start, _ in heads[1:]] + [len(lines)]
    blocks = []
    for (start, pilcrow), end in zip(heads, ends, strict=True):
        name, _, params = lines[start].partition("(")
        if name.isidentifier():
            prose = "\n".join(lines[pilcrow + 1 : end])
            marks = lines[start + 1 : pilcrow]
            blocks.append(Block(name, _read_params(params) if params else None, marks, prose))
    return blocks


def _head_of(lines: list[str], pilcrow: int) -> tuple[int, int]:
    start = pilcrow - 1
    while lines[start] in MARKS:
        start -= 1
    return start, pilcrow


def _read_params(text: str) -> list[str]:
    """Return the parameters of "a, b=(1, 2), *c)", each as it stands in the signature."""
    function = ast.parse(f"def f({text}: ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    arguments = function.args
    params = [argument.arg for argument in (*arguments.args, *arguments.kwonlyargs)]
    defaults: list[ast.expr | None] = [None] * (len(arguments.args) - len(arguments.defaults))
    defaults += [*arguments.defaults, *arguments.kw_defaults]
    written = [
        name if default is None else f"{name}={ast.unparse(default)}"
        for name, default in zip(params, defaults, strict=True)
    ]
    if arguments.vararg is not None:
        written.insert(len(arguments.args), f"*{arguments.vararg.arg}")
    return written + ([f"**{arguments.kwarg.arg}"] if arguments.kwarg is not None else [])


def write_table(table: dict[str, Any]) -> str:
    """Return the table as JSON with every list on one line."""
    return re.sub(r"\[[^\[\]]*\]", lambda found: re.sub(r"\s*\n\s*", " ", found[0]), json.dumps(table, indent=1)) + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    TABLE.write_text(write_table(make_table(Path(sys.argv[1]).read_text("utf-8"))), "utf-8")
