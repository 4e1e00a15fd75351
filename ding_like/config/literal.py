"""Write values as Python that reads back equal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ding_like.config.tree import items, join

_WIDTH = 100
_INDENT = "    "


def literal(value: Any) -> str:
    """Return a value as one line of Python; infinite floats and NaN as `float("inf")`."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{literal(key)}: {literal(item)}" for key, item in items(value)) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(literal(item) for item in value) + "]"
    if isinstance(value, tuple):
        return "(" + ", ".join(literal(item) for item in value) + ("," if len(value) == 1 else "") + ")"
    return repr(value)


def block(tree: Mapping[str, Any], comments: Mapping[str, str] | None = None, *, path: str = "", depth: int = 0) -> str:
    """Return nested dicts as indented Python, one key a line; `comments` maps a path to what its line ends with.

    Sections that fit in a line and carry no comment stay in one.
    """
    comments = comments or {}
    pad = _INDENT * (depth + 1)
    lines = ["{"]
    for key, value in items(tree):
        here = join(path, key)
        text = literal(value)
        is_long = len(pad) + len(text) > _WIDTH or any(name.startswith(f"{here}.") for name in comments)
        if isinstance(value, Mapping) and value and is_long:
            text = block(value, comments, path=here, depth=depth + 1)
        comment = f"  # {comments[here]}" if here in comments else ""
        lines.append(f"{pad}{literal(key)}: {text},{comment}")
    lines.append(_INDENT * depth + "}")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """Return a str in double quotes where that needs no more escapes than `repr`."""
    quoted = repr(text)
    return f'"{quoted[1:-1]}"' if quoted[0] == "'" and '"' not in text else quoted
