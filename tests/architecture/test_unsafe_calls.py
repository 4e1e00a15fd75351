"""No source of the package runs what it reads: no pickle, no eval, no shell, no torch.load of code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for folder in ("ding_like", "dizoo", "benchmarks") for path in (ROOT / folder).rglob("*.py"))
MODULES = frozenset(("pickle", "cPickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"))
CALLS = frozenset(("eval", "__import__", "os.system", "os.popen", "subprocess.getoutput", "pty.spawn"))
# A config is Python by design, and is read from the user's own disk only.
MAY_EXEC = frozenset(("ding_like/utils/code_files.py",))
# A pipe of pickles is what transports of weights are measured beside; it reads what the same run wrote.
# The start argument of an env's process, from its parent alone: what makes the env may be a lambda or a closure.
MAY_PICKLE = frozenset(("benchmarks/contenders/weights_plain.py", "ding_like/envs/manager/subprocess_process.py"))


def faults_of(source: str, *, may_exec: bool = False, may_pickle: bool = False) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Import, ast.ImportFrom)) and not may_pickle:
            names = [alias.name for alias in node.names]
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            yield from (f"{node.lineno}: import {name}" for name in names if name.split(".")[0] in MODULES)
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        keywords = {each.arg: ast.unparse(each.value) for each in node.keywords}
        if called in CALLS or (called in ("exec", "compile") and not may_exec):
            yield f"{node.lineno}: {called}"
        if called.endswith("torch.load") and keywords.get("weights_only") != "True":
            yield f"{node.lineno}: torch.load without weights_only=True"
        if keywords.get("allow_pickle", "False") != "False":
            yield f"{node.lineno}: allow_pickle"
        if keywords.get("shell", "False") != "False":
            yield f"{node.lineno}: shell=True"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_that_is_read_is_run(path: Path) -> None:
    own = str(path.relative_to(ROOT))

    found = faults_of(path.read_text("utf-8"), may_exec=own in MAY_EXEC, may_pickle=own in MAY_PICKLE)

    assert list(found) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle", "from pickle import loads", "import torch\ntorch.load('x')", "eval('1')", "exec('1')",
        "torch.load('x', weights_only=False)", "np.load('x', allow_pickle=True)", "os.popen('id')",
        "subprocess.run('id', shell=True)", "__import__('os')", "import cloudpickle as c", "os.system('id')",
    ],
)  # fmt: skip
def test_the_search_finds_what_it_looks_for(source: str) -> None:
    assert list(faults_of(source))
