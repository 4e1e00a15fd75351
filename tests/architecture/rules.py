"""Rules of the house that the linter does not know: layers, homes of packages, sizes, circles, loads of files.

`check` takes sources by their path under `ding_like/` ("policy/dqn.py") and returns one message per fault, so that the
tests can pass small bad sources as well as the package.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

LEVELS = {
    **dict.fromkeys(("errors", "types"), 0),
    **dict.fromkeys(("config", "utils"), 1),
    "data": 2,
    "torch_utils": 3,
    "framework": 9,
    **dict.fromkeys(("rl_utils", "model", "envs", "comm", "league"), 3),
    **dict.fromkeys(("policy", "reward_model"), 4),
    "worker": 5,
    "report": 5,
    "pipeline": 6,
    "agent": 7,
    "study": 7,
    "serve": 8,
    "entry": 9,
    "__main__": 10,
}
# A part imports lower levels and itself. Where that says too much or too little:
BASE = frozenset(("errors", "types", "config", "utils", "data"))
ONLY = {
    "errors": frozenset(),
    "types": frozenset(("errors",)),
    "utils": frozenset(("errors", "types")),
    "config": frozenset(("errors", "types", "utils")),
    "policy": BASE | {"rl_utils", "model"},
    "reward_model": BASE | {"rl_utils", "model"},
    "worker": BASE | {"rl_utils"},  # policies, envs and channels reach it as objects
}
# Levels that load without torch import it inside functions only; processes that step envs never need it.
NO_TORCH_AT_IMPORT = frozenset(("errors", "types", "config", "utils", "envs"))

# Third-party packages with one user: package -> where it may be imported.
HOMES = {
    "tensorboardX": ("utils/metrics.py",),
    "flask": ("comm/", "serve/"),
    "waitress": ("comm/",),
    "requests": ("comm/",),
    "zmq": ("comm/zmq/__init__.py",),
    "lz4": ("comm/",),
    "ray": ("comm/ray/actors.py",),
    "matplotlib": ("report/", "study/"),
    "click": ("entry/",),
    "optuna": ("study/", "entry/studies.py"),
    "wandb": ("utils/trackers.py",),
    "mlflow": ("utils/trackers.py",),
    "trackio": ("utils/trackers.py",),
    "prometheus_client": ("serve/",),
    "psutil": ("report/", "entry/profile_run.py"),
    "rich": ("utils/log.py", "report/", "study/", "entry/"),
    "dizoo": (),
}
MAX_FILE_LINES = 800
# Packages that are kept small, whatever their files are: what is of use elsewhere has its place elsewhere.
MAX_PACKAGE_LINES = {"pipeline/ray/": 2_600, "pipeline/seed/": 2_000}
MAX_FUNCTION_LINES = 60


class Import(NamedTuple):
    """Imported name: its line, its full target, and whether importing the file runs the import."""

    line: int
    target: str
    at_import: bool


def check(sources: Mapping[str, str]) -> list[str]:
    """Return a message per broken rule, in the order of files and lines."""
    faults = []
    for path, text in sorted(sources.items()):
        tree = ast.parse(text, filename=path)
        found = [*_check_layers(path, tree), *_check_homes(path, tree), *_check_lines(path, tree, text)]
        faults += [f"{path}:{line} {message}" for line, message in sorted(found)]
    return faults + _find_large_packages(sources) + _find_circles(sources)


def _find_large_packages(sources: Mapping[str, str]) -> list[str]:
    faults = []
    for package, most in MAX_PACKAGE_LINES.items():
        lines = sum(len(text.splitlines()) for path, text in sources.items() if path.startswith(package))
        if lines > most:
            faults.append(f"{package} has {lines:,} lines, at most {most:,}: move what is of use elsewhere")
    return faults


def imports_of(path: str, tree: ast.Module) -> list[Import]:
    """Return what a file imports, relative imports resolved; what the package's root exports is left out.

    The root names its exports under TYPE_CHECKING, and imports them on use.
    """
    return list(_walk_imports(tree.body, _package_of(path), at_import=True, for_checker=path != "__init__.py"))


def _walk_imports(body: list[ast.stmt], package: list[str], *, at_import: bool, for_checker: bool) -> Iterator[Import]:
    for node in body:
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name, at_import) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base += node.module.split(".") if node.module else []
            yield from (Import(node.lineno, ".".join([*base, alias.name]), at_import) for alias in node.names)
        elif isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            if for_checker:
                yield from _walk_imports(node.body, package, at_import=False, for_checker=True)
            yield from _walk_imports(node.orelse, package, at_import=at_import, for_checker=for_checker)
        else:
            is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            for part in _bodies(node):
                yield from _walk_imports(
                    part, package, at_import=at_import and not is_function, for_checker=for_checker
                )


def _bodies(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        yield getattr(node, name, [])
    for inner in (*getattr(node, "handlers", []), *getattr(node, "cases", [])):
        yield inner.body


def _package_of(path: str) -> list[str]:
    return ["ding_like", *PurePosixPath(path).parent.parts]


def _part(*parts: str) -> str:
    """Return the key of LEVELS that a path under the package belongs to: of two folders, of one, or its first part."""
    two = "/".join(parts[:2])
    return two if two in LEVELS else parts[0].removesuffix(".py")


def _may_import(part: str, other: str) -> bool:
    if part == other:
        return True
    if part in ONLY:
        return other in ONLY[part]
    return LEVELS[other] < LEVELS[part]


def _check_layers(path: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    part = _part(*PurePosixPath(path).parts)
    if part != "__init__" and part not in LEVELS:
        yield 1, f"belongs to no level: add {part!r} to the table in tests/architecture/rules.py"
        return
    for line, target, at_import in imports_of(path, tree):
        package, *rest = target.split(".")
        if package == "torch" and at_import and part in NO_TORCH_AT_IMPORT:
            yield line, f"imports torch, and {part} loads without it; import it inside the function"
        if package != "ding_like" or not rest or rest[0] not in LEVELS:
            continue
        other = _part(*rest)
        if part == "__init__" and not at_import and rest[:2] == ["utils", "registries"]:
            continue  # what the package offers is named there by strings, and imported on use
        if part == "__init__" or not _may_import(part, other):
            level = "the package's root" if part == "__init__" else f"level {LEVELS[part]}"
            yield line, f"imports {'.'.join(rest)} (level {LEVELS[other]}) from {level}"


def _check_homes(path: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    for line, target, _ in imports_of(path, tree):
        homes = HOMES.get(target.split(".")[0])
        if homes is not None and not path.startswith(homes):
            yield line, f"imports {target}, which is imported in {' and '.join(homes) or 'no file'} only"


def _check_lines(path: str, tree: ast.Module, text: str) -> Iterator[tuple[int, str]]:
    num_lines, aliases = len(text.splitlines()), _aliases(tree)
    if num_lines > MAX_FILE_LINES:
        yield num_lines, f"has {num_lines} lines, at most {MAX_FILE_LINES}: split the file"
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            num_lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if num_lines > MAX_FUNCTION_LINES:
                yield node.lineno, f"{node.name} has {num_lines} lines, at most {MAX_FUNCTION_LINES}: split it"
        elif isinstance(node, ast.Call):
            yield from _check_load(node, aliases)
        elif isinstance(node, ast.ExceptHandler):
            yield from _check_except(node, text.splitlines())


def _check_except(node: ast.ExceptHandler, lines: list[str]) -> Iterator[tuple[int, str]]:
    caught = {"BaseException"} if node.type is None else {ast.unparse(name) for name in ast.walk(node.type)}
    last = node.body[-1]
    cleans_up = "BaseException" in caught and isinstance(last, ast.Raise) and last.exc is None
    has_comment = "  # " in lines[node.lineno - 1] or lines[node.lineno - 2].lstrip().startswith("# ")
    if caught & {"Exception", "BaseException"} and not cleans_up and not has_comment:
        yield node.lineno, "catches any exception without a comment that defends it: catch the narrow class"


def _check_load(node: ast.Call, aliases: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    name, _, rest = ast.unparse(node.func).partition(".")
    called = ".".join(filter(None, (aliases.get(name, name), rest)))
    given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
    if called == "torch.load" and given.get("weights_only") != "True":
        yield node.lineno, "calls torch.load without weights_only=True: a file could run code"
    if given.get("allow_pickle", "False") != "False":
        yield node.lineno, f"calls {called} with allow_pickle: a file could run code"


def _aliases(tree: ast.Module) -> dict[str, str]:
    """Return the full names of local names: `from time import sleep as nap` gives {"nap": "time.sleep"}."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update({alias.asname: alias.name for alias in node.names if alias.asname})
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    return names


def _find_circles(sources: Mapping[str, str]) -> list[str]:
    """Return a message per group of files that import each other, at import, later or for the type checker."""
    files = {_module_of(path): path for path in sources}
    edges: dict[str, set[str]] = {module: set() for module in files}
    for module, path in files.items():
        for found in imports_of(path, ast.parse(sources[path])):
            other = _file_of(found.target, files)
            if other is not None and other != module:
                edges[module].add(other)
    reach = {module: _reachable(module, edges) for module in edges}
    groups = {tuple(sorted(files[o] for o in reach[m] if m in reach[o])) for m in edges if m in reach[m]}
    return [f"circle: {' <-> '.join(group)}" for group in sorted(groups)]


def _module_of(path: str) -> str:
    parts = PurePosixPath(path).with_suffix("").parts
    return ".".join(["ding_like", *(parts[:-1] if parts[-1] == "__init__" else parts)])


def _file_of(target: str, files: Mapping[str, str]) -> str | None:
    """Return the module that holds `target`, which names a module or something in one."""
    for module in (target, target.rpartition(".")[0]):
        if module in files:
            return module
    return None


def _reachable(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for other in edges[waiting.pop()]:
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return seen
