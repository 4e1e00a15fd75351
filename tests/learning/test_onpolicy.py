"""Learning gates of PPO and A2C: fresh evaluations of the last models, over seeds."""

import statistics
from pathlib import Path

import pytest

from tests.learning.record import record

CONFIGS = Path(__file__).parents[2] / "dizoo/classic_control"


def values(config: str, *, seeds: int, env_step: int) -> list[float]:
    rows = record(CONFIGS / config, mode="serial_onpolicy", seeds=seeds, episodes=20, env_step=env_step, overrides=[])
    return [row["eval_value"] for row in rows]


@pytest.fixture(autouse=True)
def _run_in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.learning
@pytest.mark.timeout(300)
def test_ppo_solves_cartpole_within_20000_env_steps():
    found = values("cartpole/config/cartpole_ppo_config.py", seeds=3, env_step=20_000)

    assert statistics.median(found) >= 475


@pytest.mark.learning
@pytest.mark.timeout(600)
def test_ppo_solves_cartpole_within_40000_env_steps_from_every_seed():
    found = values("cartpole/config/cartpole_ppo_config.py", seeds=5, env_step=40_000)

    assert min(found) >= 475


@pytest.mark.learning
@pytest.mark.timeout(600)
def test_a2c_solves_cartpole_within_100000_env_steps_from_every_seed():
    found = values("cartpole/config/cartpole_a2c_config.py", seeds=5, env_step=100_000)

    assert min(found) >= 475


@pytest.mark.learning
@pytest.mark.timeout(900)
def test_ppo_swings_acrobot_up_within_150000_env_steps():
    found = values("acrobot/config/acrobot_ppo_config.py", seeds=3, env_step=150_000)

    assert statistics.median(found) >= -100


@pytest.mark.learning
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", ["serial_onpolicy", "parallel"])
def test_ppo_with_normalised_observations_solves_acrobot_in_both_modes(mode):
    config = CONFIGS / "acrobot/config/acrobot_ppo_config.py"
    overrides = ["env.wrappers=[{'type': 'obs_norm'}]"]

    # In either mode four seeds of ten need more than 60,000 steps, and up to three of them 100,000.
    rows = record(config, mode=mode, seeds=5, episodes=20, env_step=150_000, overrides=overrides)

    assert statistics.median(row["eval_value"] for row in rows) >= -100
