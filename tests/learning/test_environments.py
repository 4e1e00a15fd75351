"""Learning gates of Acrobot, MountainCar, LunarLander and BipedalWalker: 100 fresh episodes of the last models."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks.pages import bar_of
from tests.learning.record import record

ROOT = Path(__file__).parents[2]
SEEDS = 3
EPISODES = 100


class Gate(NamedTuple):
    """Say within how many env steps the bar is to be reached, and whether a test trains for it."""

    folder: str
    mode: str
    env_step: int
    is_trained: bool = True  # of the others, that take half an hour a seed, the recording stands


GATES = {
    "acrobot_dqn": Gate("classic_control/acrobot", "serial", 60_000),
    "mountain_car_dqn": Gate("classic_control/mountain_car", "serial", 120_000),
    "lunarlander_dqn": Gate("box2d/lunarlander", "serial", 200_000),
    "lunarlander_ppo": Gate("box2d/lunarlander", "serial_onpolicy", 500_000),
    "lunarlander_cont_sac": Gate("box2d/lunarlander", "serial", 300_000, is_trained=False),
    "bipedalwalker_sac": Gate("box2d/bipedalwalker", "serial", 500_000, is_trained=False),
}


@pytest.mark.learning
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", [name for name, gate in GATES.items() if gate.is_trained])
def test_the_bar_is_reached_within_the_env_steps(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    gate = GATES[name]
    config = ROOT / "dizoo" / gate.folder / "config" / f"{name}_config.py"

    rows = record(config, mode=gate.mode, seeds=SEEDS, episodes=EPISODES, env_step=gate.env_step, overrides=[])

    assert statistics.median(row["eval_value"] for row in rows) >= bar_of(name)


@pytest.mark.parametrize("name", GATES)
def test_what_was_recorded_reached_the_bar_within_the_env_steps(name: str) -> None:
    found = json.loads((ROOT / "docs/learning" / f"{name}.json").read_text())
    most = 1.01 * GATES[name].env_step  # a batch of collecting is not cut short

    assert found["config"] == f"{name}_config.py" and found["overrides"] == []
    assert [row["seed"] for row in found["runs"]] == list(range(SEEDS)) and found["episodes"] == EPISODES
    assert found["most_env_steps"] <= most
    assert found["median_eval_value"] >= bar_of(name)
