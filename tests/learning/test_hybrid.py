"""Learning gate of choices with parameters: Moving-v0 beside what a plan that knows the env earns."""

import json
import statistics
from pathlib import Path

import pytest

from tests.learning.record import record

ROOT = Path(__file__).parents[2]
OPTIMUM = json.loads((ROOT / "docs/reports/gym_hybrid_moving_optimum.json").read_text())["mean_return"]


@pytest.mark.learning
@pytest.mark.timeout(3600)
def test_hybrid_ppo_comes_near_the_optimum_within_a_million_env_steps(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = ROOT / "dizoo/gym_hybrid/config/gym_hybrid_hppo_config.py"

    rows = record(config, mode="serial_onpolicy", seeds=3, episodes=100, env_step=1_000_000, overrides=[])

    assert statistics.median(row["eval_value"] for row in rows) >= 0.8 * OPTIMUM
