"""Learning gate of Rainbow: fresh evaluations of the last models, median over seeds."""

import statistics
from pathlib import Path

import pytest

from tests.learning.record import record

CONFIG = Path(__file__).parents[2] / "dizoo/classic_control/cartpole/config/cartpole_rainbow_config.py"


@pytest.mark.learning
@pytest.mark.timeout(300)
def test_rainbow_solves_cartpole_within_20000_env_steps(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    rows = record(CONFIG, mode="serial", seeds=3, episodes=20, env_step=20_000, overrides=[])

    assert statistics.median(row["eval_value"] for row in rows) >= 475
