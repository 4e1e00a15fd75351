"""Read PyTorchRL's API pages of schemes, saved as text, into tables beside this file.

    python tests/pipeline/ray/api_table.py PAGE NAME.json

A class begins with a line "class package.module.Name(params)[source]". Below it a name alone, with prose and "Type"
behind, is an attribute; "name(params)[source]" is a method, marked by "classmethod" or "property" before it. In some
pages each of these begins with "- ". A page that lost its links lacks some types, and runs a base into the prose.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from tests.api.make_table import _read_params, write_table

FOLDER = Path(__file__).parent
MAKES_NOTHING = "<lambda>"  # the default of a factory that makes nothing
TYPES = frozenset(
    ("int", "float", "bool", "str", "dict", "List", "python class", "queue.Queue", "torch.device", "torch.tensor")
    + ("Actor", "Algo", "VecEnv", "Storage")
)
_HEADS = frozenset(("Type", "Parameters", "Returns", "func", "Module contents", "Submodules"))
_CLASS = re.compile(r"class [\w.]*?(\w+)\((.*)\)\[source\]")
_METHOD = re.compile(r"(classmethod )?(\w+)\((.*)\)\[source\]")
_PROPERTY = re.compile(r"property (\w+)")
_NAME = re.compile(r"\w+")
_LAMBDA = re.compile(r"<function [\w.]+<lambda>>")
_BASE = re.compile(r"[\w.]*\.((?:[A-Z]\w*?)?(?:WorkerSet|Worker|Thread))(?![a-z]).*")


def make_table(page: str) -> dict[str, Any]:
    """Return {class: {"bases", "params", "attributes", "members"}}, in the order of the page.

    Attributes have the page's type, '' where it has none. A member is {"params": [...]}, or {} for a property, with
    "marks" where it has any. A parameter is written as in a signature, "listen_to=[]"; a lambda as MAKES_NOTHING.
    """
    lines = [line.strip().removeprefix("- ").strip() for line in page.splitlines()]
    lines = [line for line in lines if line]
    table: dict[str, Any] = {}
    entry: dict[str, Any] = {}
    newest = ""  # attribute
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if found := _CLASS.fullmatch(line):
            entry = table[found[1]] = {"bases": [], "params": _params(found[2]), "attributes": {}, "members": {}}
        elif not table:
            continue
        elif line.startswith("Bases:"):
            base = _BASE.fullmatch(line.removeprefix("Bases:").strip() or following)
            entry["bases"] += [base[1]] if base else []
        elif found := _METHOD.fullmatch(line):
            marks = {"marks": ["classmethod"]} if found[1] else {}
            entry["members"][found[2]] = {"params": _params(found[3])} | marks
        elif found := _PROPERTY.fullmatch(line):
            entry["members"][found[1]] = {"marks": ["property"]}
        elif line == "Type":
            entry["attributes"][newest] = following if following in TYPES else ""
        elif _NAME.fullmatch(line) and line not in TYPES | _HEADS:
            newest = line
    return table


def _params(text: str) -> list[str]:
    return _read_params(_LAMBDA.sub(repr(MAKES_NOTHING), text) + ")")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    (FOLDER / sys.argv[2]).write_text(write_table(make_table(Path(sys.argv[1]).read_text("utf-8"))), "utf-8")
