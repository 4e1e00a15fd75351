"""Count what the design page promises of the structure: `python -m tests.architecture.structure [TREE]` prints it.

A tree is a folder that holds `ding_like`; the figures are read from its sources, nothing of it is run.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
WAY_OF_A_ROW = Path(__file__).with_name("way_of_a_row.txt")

# What makes an env manager, or a policy: names that are called.
_MANAGER_MAKERS = frozenset(("create_env_manager",))
_POLICY_MAKERS = frozenset(("create_policy",))
# Files of one package that is a place of its own.
_ONE_PLACE = "pipeline/build"

# Figure -> the most it may be. A change that needs more says why in its commit, and moves the limit.
LIMITS: Mapping[str, float] = {
    "hands of a row": 27,
    "files with a hand in it": 21,
    "places that make managers": 1,
    "places that make policies": 1,
    "stop loops over RolloutLoop": 1,
    "lines of FlaskFileSystemLearner": 170,
    "public functions with Any, %": 26.0,
}


class Hand(NamedTuple):
    """Hold one line of the way of a row: the file under `ding_like`, and the function by its name in it."""

    path: str
    name: str


def measure(tree: Path) -> dict[str, float]:
    """Return every figure of a tree; the way of a row is listed by hand, for this tree alone."""
    package = tree / "ding_like"
    sources = {
        path.relative_to(package).as_posix(): ast.parse(path.read_text("utf-8")) for path in package.rglob("*.py")
    }
    figures: dict[str, float] = {}
    listed = tree / WAY_OF_A_ROW.relative_to(ROOT)
    if listed.exists():
        hands = way_of_a_row(listed)
        figures = {"hands of a row": len(hands), "files with a hand in it": len({hand.path for hand in hands})}
    functions = [function for module in sources.values() for function in _public_functions(module)]
    return {
        **figures,
        "places that make managers": len(places_that_call(sources, _MANAGER_MAKERS)),
        "places that make policies": len(places_that_call(sources, _POLICY_MAKERS)),
        "stop loops over RolloutLoop": len(stop_loops(sources)),
        "lines of FlaskFileSystemLearner": lines_of_class(sources, "FlaskFileSystemLearner"),
        "public functions with Any, %": round(100 * sum(map(has_any, functions)) / max(len(functions), 1), 1),
    }


def way_of_a_row(path: Path = WAY_OF_A_ROW) -> list[Hand]:
    """Read the list of those whom a row goes through."""
    lines = (line.partition("#")[0].split() for line in path.read_text("utf-8").splitlines())
    return [Hand(*line) for line in lines if line]


def missing_hands(hands: list[Hand], tree: Path) -> list[Hand]:
    """Return the hands that a tree does not have."""
    missing = []
    for hand in hands:
        path = tree / "ding_like" / hand.path
        if not path.exists() or hand.name not in _names(ast.parse(path.read_text("utf-8"))):
            missing.append(hand)
    return missing


def _names(module: ast.Module) -> set[str]:
    """Return the functions of a module, and the methods of its classes as "Class.method"."""
    names = set()
    for node in module.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return names


def places_that_call(sources: Mapping[str, ast.Module], makers: frozenset[str]) -> list[str]:
    """Return the files that call one of `makers`; those of `pipeline/build` are one place together."""
    places = {path for path, module in sources.items() for call in _calls(module) if _called(call) in makers}
    return sorted({_ONE_PLACE if PurePosixPath(path).is_relative_to(_ONE_PLACE) else path for path in places})


def stop_loops(sources: Mapping[str, ast.Module]) -> list[str]:
    """Return the `while` loops that step a rollout loop: a name `loop`, by `loop.step(...)`."""
    return [
        f"{path}:{node.lineno}"
        for path, module in sorted(sources.items())
        for node in ast.walk(module)
        if isinstance(node, ast.While)
        and any(ast.unparse(call.func) == "loop.step" for part in node.body for call in _calls(part))
    ]


def lines_of_class(sources: Mapping[str, ast.Module], name: str) -> int:
    """Return how many lines a class has, 0 if there is none."""
    for module in sources.values():
        for node in module.body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                return (node.end_lineno or node.lineno) - node.lineno + 1
    return 0


def _public_functions(node: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef]:
    """Yield public functions, and the public methods and constructors of public classes."""
    for inner in node.body:
        if isinstance(inner, ast.ClassDef) and not inner.name.startswith("_"):
            yield from _public_functions(inner)
        elif isinstance(inner, ast.FunctionDef) and (not inner.name.startswith("_") or inner.name == "__init__"):
            yield inner


def has_any(function: ast.FunctionDef) -> bool:
    """Tell whether a signature says `Any`; one that hides in an alias (State, Array, Config) is not seen."""
    given = function.args
    arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    annotations = [argument.annotation for argument in arguments if argument is not None] + [function.returns]
    named = (name for each in annotations if each is not None for name in ast.walk(each))
    return any(isinstance(name, ast.Name) and name.id == "Any" for name in named)


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def main(arguments: list[str]) -> None:
    tree = Path(arguments[0]) if arguments else ROOT
    figures = measure(tree)
    for name, limit in LIMITS.items():
        print(f"{name:<34}{figures.get(name, '-'):>8}   at most {limit:g}")


if __name__ == "__main__":
    main(sys.argv[1:])
