"""The package keeps the house's rules: imports point down, files are short, nothing sleeps or unpickles."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.rules import check

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "ding_like"


def modules_under(name: str) -> list[str]:
    """Return the import names of all files of one part of the package."""
    paths = sorted((PACKAGE / name).rglob("*.py"))
    return [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in paths]


def test_package_keeps_every_rule() -> None:
    sources = {path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}

    faults = check(sources)

    assert not faults, "\n" + "\n".join(faults)


@pytest.mark.parametrize(
    "modules",
    [["ding_like", "ding_like.errors", "ding_like.types"], ["ding_like.entry.cli"]]
    + [modules_under(name) for name in ("utils", "config", "envs")],
    ids=["root", "cli", "utils", "config", "envs"],
)
def test_loads_without_torch(modules: list[str]) -> None:
    # What a file imports may import torch in turn, which only Python itself finds out.
    code = f"import sys, {', '.join(modules)}; sys.exit('torch' in sys.modules)"

    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True)

    assert result.returncode == 0, result.stderr or "torch was loaded"
