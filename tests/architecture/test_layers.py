"""The package keeps the rules of the house: imports point down, files and functions are short, torch loads late."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


def test_what_steps_envs_and_the_command_line_load_without_torch() -> None:
    modules = [
        "ding_like.entry.cli",
        "ding_like.pipeline.seed.actor",
        *(module for part in ("utils", "config", "envs") for module in modules_under(part)),
    ]
    # What a file imports may import torch in turn, which only Python itself finds out.
    code = (
        f"import sys\nfor m in {modules}:\n    __import__(m)\n    assert 'torch' not in sys.modules, m + ' loads torch'"
    )

    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True)

    assert result.returncode == 0, result.stderr
