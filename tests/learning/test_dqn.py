"""Learning gates: a fresh evaluation of the last model, median over seeds."""

import statistics
from pathlib import Path

import pytest

from tests.learning.record import record

ROOT = Path(__file__).parents[2]


@pytest.mark.learning
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["cartpole_dqn_config.py", "cartpole_dqn_per_config.py"])
def test_dqn_solves_cartpole_within_15000_env_steps(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = ROOT / "dizoo/classic_control/cartpole/config" / name

    rows = record(config, mode="serial", seeds=3, episodes=20, env_step=15_000, overrides=[])

    assert statistics.median(row["eval_value"] for row in rows) >= 475
