"""Learning gates of `ding -m ray` with two workers: as good as serial, and not many more env steps."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from tests.learning.record import record

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "dizoo/classic_control/cartpole/config"
RECORDS = ROOT / "docs/learning"
BAR = 475.0
MOST = 1.5  # times the env steps that serial takes
ALGORITHMS = ("dqn", "ppo", "impala")
RECORDED = sorted(RECORDS.glob("cartpole_*_ray.json"))


def serial_of(algorithm: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RECORDS / f"cartpole_{algorithm}.json").read_text())
    return found


@pytest.mark.learning
@pytest.mark.timeout(900)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_cartpole_is_solved_on_ray_in_one_and_a_half_times_the_env_steps_of_serial(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)
    most = MOST * serial_of(algorithm)["median_env_step"]

    rows = record(
        CONFIGS / f"cartpole_{algorithm}_config.py", mode="ray", seeds=5, episodes=20, env_step=60_000, overrides=[]
    )

    assert statistics.median(row["eval_value"] for row in rows) >= BAR
    assert statistics.median(row["env_step"] for row in rows) <= most


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_what_was_recorded_on_ray_reaches_the_bar_in_one_and_a_half_times_the_env_steps_of_serial(path: Path) -> None:
    found = json.loads(path.read_text())
    serial = serial_of(path.stem.removeprefix("cartpole_").removesuffix("_ray"))

    assert found["mode"] == "ray" and found["overrides"] == serial["overrides"] and len(found["runs"]) == 5
    assert found["median_eval_value"] >= BAR
    assert found["median_env_step"] <= MOST * serial["median_env_step"]
