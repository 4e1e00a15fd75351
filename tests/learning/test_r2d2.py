"""Learning gate: with its velocities hidden CartPole is solved by a network that remembers, and not by one without."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from tests.learning.record import record

CONFIGS = Path(__file__).parents[2] / "dizoo/classic_control/cartpole/config"


@pytest.mark.learning
@pytest.mark.timeout(1800)
def test_r2d2_balances_the_pole_from_positions_alone_within_100000_env_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    rows = record(
        CONFIGS / "cartpole_hidden_r2d2_config.py", mode="serial", seeds=3, episodes=20, env_step=100_000, overrides=[]
    )

    assert statistics.median(row["eval_value"] for row in rows) >= 400
