"""Find the line on which each key of a config file stands, by reading the file without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from ding_like.config.tree import join

# A config that a file defines -> what the paths of its keys have in front.
_ROOTS = {"main_config": "", "create_config": "create_config", "system_config": "system"}


def find_lines(path: str) -> dict[str, int]:
    """Return {path of a key: line}, as far as the file spells its dicts out; keys of create_config have it in front,
    those of system_config "system".

    Follows names, `dict(...)`, `EasyDict(...)`, `{...}`, `**name`, `a | b` and `main_config.policy.x = ...`. This only
    decorates an error that is already certain, so a file that cannot be read or parsed gives nothing.
    """
    try:
        module = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return {}
    finder = _Finder(module)
    for root, prefix in _ROOTS.items():
        finder.visit(ast.Name(root), prefix, seen=frozenset())
    finder.visit_assignments(module)
    return finder.lines


def dict_entries(node: ast.expr) -> Iterator[tuple[str | None, ast.expr, int]]:
    """Yield (key, value, line) of `dict(...)` or `{...}`; the key of `**value` is None."""
    if isinstance(node, ast.Call):
        yield from ((keyword.arg, keyword.value, keyword.lineno) for keyword in node.keywords)
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                yield None, value, value.lineno
            elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, value, key.lineno


class _Finder:
    def __init__(self, module: ast.Module) -> None:
        self.lines: dict[str, int] = {}
        self._values: dict[str, list[ast.expr]] = {}
        for node in module.body:
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Name):
                        self._values.setdefault(target.id, []).append(node.value)

    def visit(self, node: ast.expr, path: str, *, seen: frozenset[str]) -> None:
        """Record the lines of all keys of a dict expression that lies at `path`."""
        if isinstance(node, ast.Name) and node.id not in seen:
            # `main_config = EasyDict(main_config)` names itself: its earlier values count as well.
            for value in self._values.get(node.id, ()):
                self.visit(value, path, seen=seen | {node.id})
        elif isinstance(node, (ast.Call, ast.Dict)):
            for argument in node.args if isinstance(node, ast.Call) else ():
                self.visit(argument, path, seen=seen)
            for key, value, line in dict_entries(node):
                self._record(key, value, path, line, seen)
        elif isinstance(node, ast.BinOp):
            self.visit(node.left, path, seen=seen)
            self.visit(node.right, path, seen=seen)

    def visit_assignments(self, module: ast.Module) -> None:
        """Record `main_config.policy.x = ...` and `main_config["policy"]["x"] = ...`."""
        for node in module.body:
            for target in node.targets if isinstance(node, ast.Assign) else ():
                root, *keys = _keys(target)
                if keys and root in _ROOTS:
                    self.lines[join(_ROOTS[root], ".".join(keys))] = target.lineno

    def _record(self, key: str | None, value: ast.expr, path: str, line: int, seen: frozenset[str]) -> None:
        here = path if key is None else join(path, key)  # None stands for `**value`
        if key is not None:
            self.lines[here] = line
        self.visit(value, here, seen=seen)


def _keys(node: ast.expr) -> list[str]:
    """Return the names of `a.b["c"]`, or one empty name for anything else."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        return [*_keys(node.value), node.attr]
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        return [*_keys(node.value), node.slice.value]
    return [""]
