"""Counter of code lines and of wording against the style guide: `python -m tests.architecture.lines FOLDER [DEPTH]`.

A line of code is one with code on it: docstrings, comments and blank lines do not count.
"""

from __future__ import annotations

import ast
import collections
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

# A class docstring starts with a noun phrase.
VERBS = frozenset("Be Hold Say Keep Tell Know Have Stand Do Let Take Give Make".split())
PHRASES = re.compile(
    r"\b(whoever|those who|he who|nobody|somebody|is told|are told|was told|what is said|says so)\b", re.IGNORECASE
)
_NO_CODE = frozenset(
    (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
)
_SMALL = 60


def code_lines(source: str) -> int:
    """Return the number of lines with code."""
    docs: set[int] = set()
    for node, _ in _docstrings(ast.parse(source)):
        docs.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docs)


def wording_faults(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, message) for class docstrings that start with a verb, and for phrases without an actor."""
    for node, owner in _docstrings(ast.parse(source)):
        word = ast.literal_eval(node.value).split(maxsplit=1)[:1]
        if isinstance(owner, ast.ClassDef) and word and word[0] in VERBS:
            yield node.lineno, f"the docstring of class {owner.name} starts with {word[0]!r}: start with a noun phrase"
    for number, line in enumerate(source.splitlines(), 1):
        for found in PHRASES.finditer(line):
            yield number, f"{found[0]!r} names no actor: name the caller, the worker, the user"


def public_functions(source: str) -> tuple[int, int]:
    """Return how many public functions and constructors there are, and how many of them have Any in their signature."""
    number = with_any = 0
    bodies = [ast.parse(source).body]
    while bodies:
        for node in bodies.pop():
            if isinstance(node, ast.ClassDef):
                bodies.append(node.body)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                if node.name == "__init__" or not node.name.startswith("_"):
                    number += 1
                    with_any += _has_any(node)
    return number, with_any


def _has_any(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    given = function.args
    arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    annotations = [function.returns, *(each.annotation for each in arguments if each is not None)]
    names = (name for each in annotations if each is not None for name in ast.walk(each))
    return any(isinstance(name, ast.Name) and name.id == "Any" for name in names)


def _docstrings(tree: ast.Module) -> Iterator[tuple[ast.Expr, ast.AST]]:
    for owner in ast.walk(tree):
        if isinstance(owner, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = owner.body[0] if owner.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and type(first.value.value) is str:
                yield first, owner


def main() -> None:
    """Print a line for each folder, and the sums."""
    root, depth = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    code, files = collections.Counter[str](), collections.Counter[str]()
    public, with_any = collections.Counter[str](), collections.Counter[str]()
    small = faults = 0
    for path in root.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        room = "/".join(path.relative_to(root).parts[:-1][:depth]) or "."
        lines = code_lines(source)
        code[room] += lines
        files[room] += 1
        small += lines < _SMALL
        faults += len(list(wording_faults(source)))
        functions, arbitrary = public_functions(source)
        public[room] += functions
        with_any[room] += arbitrary
    for room, lines in sorted(code.items(), key=lambda item: -item[1]):
        any_share = f"{with_any[room]:3d} of {public[room]:4d} functions with Any"
        sys.stdout.write(f"{lines:7,d} lines {files[room]:4d} files  {any_share}  {room}\n")
    any_share = sum(with_any.values()) / max(1, sum(public.values()))
    total = f"{sum(code.values()):7,d} lines {sum(files.values()):4d} files  {root}"
    sys.stdout.write(
        f"{total}: {small} files under {_SMALL} lines, {faults} faults of wording, "
        f"{any_share:.1%} of {sum(public.values()):,} public functions with Any\n"
    )


if __name__ == "__main__":
    main()
