"""Learning gates of recurrent PPO and IMPALA: fresh evaluations of the last models, over seeds."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from tests.learning.record import record

CONFIGS = Path(__file__).parents[2] / "dizoo/classic_control/cartpole/config"
HIDDEN = "env.wrappers=[{'type': 'obs_select', 'indices': [0, 2]}, {'type': 'obs_norm'}]"


def median(config: str, *, mode: str, env_step: int, overrides: list[str] | None = None) -> float:
    rows = record(CONFIGS / config, mode=mode, seeds=3, episodes=20, env_step=env_step, overrides=overrides or [])
    return statistics.median(row["eval_value"] for row in rows)


@pytest.fixture(autouse=True)
def _run_in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.learning
@pytest.mark.timeout(300)
def test_impala_solves_cartpole_within_60000_env_steps() -> None:
    assert median("cartpole_impala_config.py", mode="serial", env_step=60_000) >= 475


@pytest.mark.learning
@pytest.mark.timeout(900)
def test_recurrent_ppo_balances_the_pole_from_positions_alone_within_100000_env_steps() -> None:
    assert median("cartpole_hidden_ppo_recurrent_config.py", mode="serial_onpolicy", env_step=100_000) >= 400


@pytest.mark.learning
@pytest.mark.timeout(900)
def test_ppo_without_memory_does_not() -> None:
    found = median("cartpole_ppo_config.py", mode="serial_onpolicy", env_step=100_000, overrides=[HIDDEN])

    assert found < 150
