"""Apply mutations to a copy of the tree, one at a time, and run the tests that must notice."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 120.0
# What pytest's exit statuses mean: https://docs.pytest.org/en/stable/reference/exit-codes.html
_ALL_PASSED, _SOME_FAILED = 0, 1
# Files of a copy are this old, so that a mutated one is always newer than its compiled form.
_LONG_AGO_S = 1_000_000_000


class Mutation(NamedTuple):
    """Hold one slip: in `file`, which has `old` exactly once, `new` stands in its place, and `killers` must fail."""

    file: str
    old: str
    new: str
    killers: tuple[str, ...]  # test ids, relative to the root of the tree


class Outcome(NamedTuple):
    """Hold what became of a mutation: 'killed', 'survived', 'does not fit', 'timed out' or 'broken'."""

    mutation: Mutation
    verdict: str
    detail: str = ""

    @property
    def is_killed(self) -> bool:
        """Tell whether the tests noticed. A mutant that hangs its tests is noticed too."""
        return self.verdict in ("killed", "timed out")


def fault(mutation: Mutation, root: Path = ROOT) -> str | None:
    """Return what is wrong with a mutation of the tree at `root`, None if it fits and its killers exist."""
    path = root / mutation.file
    if not path.is_file():
        return f"there is no {mutation.file}"
    found = path.read_text().count(mutation.old)
    if found != 1:
        return f"its text occurs {found} times in {mutation.file}, expected once"
    if mutation.old == mutation.new:
        return "it changes nothing"
    if not mutation.killers:
        return "it names no test that must fail"
    missing = [killer for killer in mutation.killers if not _has_test(root, killer)]
    return f"there is no test {', '.join(missing)}" if missing else None


def _has_test(root: Path, killer: str) -> bool:
    file, _, name = killer.partition("::")
    path = root / file
    if not path.is_file():
        return False
    wanted = name.partition("[")[0].rpartition("::")[2]
    return any(
        isinstance(node, ast.FunctionDef) and node.name == wanted for node in ast.walk(ast.parse(path.read_text()))
    )


def make_copy(folder: Path, root: Path = ROOT) -> Path:
    """Copy what the tests need of the tree, compiled parts included, and return the copy."""
    copy = folder / "tree"
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc", ".*_cache", ".hypothesis")
    for name in ("ding_like", "dizoo", "tests", "benchmarks", "docs"):
        shutil.copytree(root / name, copy / name, ignore=ignored)
    for path in root.iterdir():
        if path.is_file():
            shutil.copy2(path, copy / path.name)
    for path in copy.rglob("*.py"):
        os.utime(path, (_LONG_AGO_S, _LONG_AGO_S))
    return copy


def run_tests(
    copy: Path, killers: Sequence[str], *, timeout_s: float = TIMEOUT_S, options: Sequence[str] = ("-x",)
) -> subprocess.CompletedProcess[str]:
    """Run tests in a copy and return the finished process. Raises subprocess.TimeoutExpired."""
    return subprocess.run(
        # -m "": a killer may be of a slower kind.
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "", *options, *killers],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )


@contextmanager
def applied(mutation: Mutation, copy: Path) -> Iterator[None]:
    """Have a copy of the tree with the mutation in it for the length of the block."""
    path = copy / mutation.file
    text = path.read_text()
    path.write_text(text.replace(mutation.old, mutation.new))
    try:
        yield
    finally:
        path.write_text(text)
        os.utime(path, (_LONG_AGO_S, _LONG_AGO_S))


def judge(mutation: Mutation, copy: Path) -> Outcome:
    """Say what becomes of one mutation in a copy of the tree."""
    wrong = fault(mutation, copy)
    if wrong is not None:
        return Outcome(mutation, "does not fit", wrong)
    with applied(mutation, copy):
        try:
            done = run_tests(copy, mutation.killers)
        except subprocess.TimeoutExpired:
            return Outcome(mutation, "timed out", f"after {TIMEOUT_S:g} s")
    if done.returncode == _ALL_PASSED:
        return Outcome(mutation, "survived", f"{', '.join(mutation.killers)} passed")
    if done.returncode == _SOME_FAILED:
        return Outcome(mutation, "killed")
    return Outcome(mutation, "broken", (done.stdout + done.stderr)[-2000:])


def run(mutations: Sequence[Mutation], folder: Path, *, processes: int = 2, root: Path = ROOT) -> Iterator[Outcome]:
    """Yield what becomes of each mutation, as it is known; the tree itself is only read.

    Raises RuntimeError if a killer fails without any mutation: then it would say nothing.
    """
    copies = [make_copy(folder / str(number), root) for number in range(processes)]
    killers = sorted({killer for each in mutations if fault(each, root) is None for killer in each.killers})
    if killers:
        clean = run_tests(copies[0], killers, timeout_s=TIMEOUT_S * 10, options=())
        if clean.returncode != _ALL_PASSED:
            raise RuntimeError(f"tests fail without any mutation:\n{(clean.stdout + clean.stderr)[-4000:]}")
    free, lock = list(copies), threading.Lock()

    def judged(mutation: Mutation) -> Outcome:
        with lock:
            copy = free.pop()
        try:
            return judge(mutation, copy)
        finally:
            with lock:
                free.append(copy)

    with ThreadPoolExecutor(processes) as pool:
        yield from pool.map(judged, mutations)
