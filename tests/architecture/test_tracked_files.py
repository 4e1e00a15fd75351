"""What is kept in the repository: nothing that a run has left behind."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Of every experiment folder; what benchmarks and reports are made of has other names.
_LEFT_BY_RUNS = ("total_config.py", "metrics.jsonl", "*.pth.tar", "events.out.tfevents*")


def test_no_folder_of_a_run_is_kept() -> None:
    found = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")

    assert len(found) > 1000, "git lists what is kept"
    assert [path for path in found if any(Path(path).match(name) for name in _LEFT_BY_RUNS)] == []
