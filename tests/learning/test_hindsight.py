"""Learning gates of hindsight replay: fresh episodes of the last models, median over seeds."""

import statistics
from pathlib import Path

import pytest

from tests.learning.record import record

DIZOO = Path(__file__).parents[2] / "dizoo"


def median(config: str, **kwargs) -> float:
    rows = record(DIZOO / config, mode="serial", seeds=3, **kwargs)
    return statistics.median(row["eval_value"] for row in rows)


@pytest.mark.learning
@pytest.mark.timeout(1200)
def test_twenty_bits_are_flipped_to_their_goals_within_200000_env_steps(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = "bitflip/config/bitflip_her_dqn_config.py"

    assert median(config, episodes=100, env_step=200_000, overrides=[]) >= 0.95


@pytest.mark.learning
@pytest.mark.timeout(600)
def test_twenty_bits_are_not_learned_without_hindsight(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config, without = "bitflip/config/bitflip_her_dqn_config.py", ["policy.other.replay_buffer.k=0"]

    assert median(config, episodes=100, env_step=50_000, overrides=without) < 0.01


@pytest.mark.learning
@pytest.mark.timeout(1200)
def test_fetchreach_is_solved_within_20000_env_steps(tmp_path, monkeypatch):
    pytest.importorskip("gymnasium_robotics")
    monkeypatch.chdir(tmp_path)
    config = "robotics/config/fetchreach_her_sac_config.py"

    assert median(config, episodes=50, env_step=20_000, overrides=[]) >= -4
