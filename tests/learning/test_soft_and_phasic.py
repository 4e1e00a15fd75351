"""Learning gates of discrete SAC, REINFORCE, PPG and off-policy PPO: 20 fresh episodes of the last model, median."""

import statistics
from pathlib import Path

import pytest

from tests.learning.record import record

CONFIGS = Path(__file__).parents[2] / "dizoo/classic_control/cartpole/config"


@pytest.mark.learning
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "mode", "env_step"),
    [
        ("sac", "serial", 60_000),
        ("ppo_offpolicy", "serial", 60_000),
        ("pg", "serial_onpolicy", 100_000),
        ("ppg", "serial_onpolicy", 40_000),
    ],
)
def test_cartpole_is_solved_in_the_median_of_three_seeds(name, mode, env_step, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = CONFIGS / f"cartpole_{name}_config.py"

    rows = record(config, mode=mode, seeds=3, episodes=20, env_step=env_step, overrides=[])

    assert statistics.median(row["eval_value"] for row in rows) >= 475
