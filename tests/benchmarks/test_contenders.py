import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("script", ["dqn_ours", "collect_ours"])
def test_our_contenders_print_rates(script, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.contenders.{script}", "--steps", "1100"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )

    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert {row["metric"] for row in rows} >= {"env_steps_cpu", "env_steps_wall"}, done.stderr
    assert all(row["value"] > 0 for row in rows)
