"""Learning gates of C51 and QR-DQN: a fresh evaluation of the last model, median over seeds."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from tests.learning.record import record

CONFIGS = Path(__file__).parents[2] / "dizoo/classic_control/cartpole/config"


@pytest.mark.learning
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["cartpole_c51_config.py", "cartpole_qrdqn_config.py"])
def test_distributional_q_learning_solves_cartpole_within_20000_env_steps(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    rows = record(CONFIGS / name, mode="serial", seeds=5, episodes=20, env_step=20_000, overrides=[])

    assert statistics.median(row["eval_value"] for row in rows) >= 475
