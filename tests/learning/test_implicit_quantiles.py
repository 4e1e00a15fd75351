"""Learning gates of IQN and FQF: a fresh evaluation of the last model, median over seeds."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from tests.learning.record import record

CONFIGS = Path(__file__).parents[2] / "dizoo/classic_control/cartpole/config"


@pytest.mark.learning
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["cartpole_iqn_config.py", "cartpole_fqf_config.py"])
def test_quantiles_at_any_fraction_solve_cartpole_within_20000_env_steps(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    rows = record(CONFIGS / name, mode="serial", seeds=5, episodes=20, env_step=20_000, overrides=[])

    assert statistics.median(row["eval_value"] for row in rows) >= 475
