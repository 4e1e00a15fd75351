"""Learning gates of continuous control: 100 fresh episodes of the last model, median over seeds."""

import statistics
from pathlib import Path

import pytest

from tests.learning.record import record

CONFIGS = Path(__file__).parents[2] / "dizoo/classic_control/pendulum/config"


@pytest.mark.learning
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["sac", "td3", "ddpg"])
def test_pendulum_is_solved_within_10000_env_steps(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = CONFIGS / f"pendulum_{name}_config.py"

    rows = record(config, mode="serial", seeds=3, episodes=100, env_step=10_000, overrides=[])

    assert statistics.median(row["eval_value"] for row in rows) >= -200
