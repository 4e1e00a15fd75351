"""Learning gates of `ding -m seed` with two actor threads: as good as serial, and not many more env steps."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.pages import BARS, bar_of
from tests.learning.record import record
from tests.learning.seed_runs import run

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "docs/learning"
RECORDED = sorted(RECORDS.glob("*_seed.json"))
MOST = 1.5  # times the env steps that serial takes, of Rainbow


class Gate(NamedTuple):
    """Say how a config is trained, and how often."""

    config: str
    seeds: int
    episodes: int
    env_step: int


GATES = {
    "cartpole_rainbow": Gate("cartpole/config/cartpole_rainbow_config.py", 5, 20, 40_000),
    "cartpole_dqn": Gate("cartpole/config/cartpole_dqn_config.py", 3, 20, 40_000),
    "pendulum_sac": Gate("pendulum/config/pendulum_sac_config.py", 3, 100, 20_000),
}


def serial_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RECORDS / f"{name}.json").read_text())
    return found


@pytest.mark.learning
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", GATES)
def test_central_inference_learns_in_one_and_a_half_times_the_env_steps_of_serial(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("zmq")
    monkeypatch.chdir(tmp_path)
    config, seeds, episodes, env_step = GATES[name]

    rows = record(
        ROOT / "dizoo/classic_control" / config,
        mode="seed",
        seeds=seeds,
        episodes=episodes,
        env_step=env_step,
        overrides=[],
    )

    assert statistics.median(row["eval_value"] for row in rows) >= bar_of(name)
    assert statistics.median(row["env_step"] for row in rows) <= MOST * serial_of(name)["median_env_step"]


@pytest.mark.learning
@pytest.mark.timeout(1800)
def test_r2d2_balances_the_pole_from_positions_alone_with_its_memory_at_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("zmq")
    monkeypatch.chdir(tmp_path)

    rows = record(
        ROOT / "dizoo/classic_control/cartpole/config/cartpole_hidden_r2d2_config.py",
        mode="seed",
        seeds=3,
        episodes=20,
        env_step=100_000,
        overrides=[],
    )

    assert statistics.median(row["eval_value"] for row in rows) >= BARS["cartpole_hidden"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "steps", "overrides"),
    [("pong", 2400, ["policy.random_collect_size=200", "env.n_evaluator_episode=2"]), ("hidden_r2d2", 4000, [])],
    ids=["pong", "hidden_r2d2"],
)
def test_a_long_run_begins_and_tells_how_inference_goes(
    name: str, steps: int, overrides: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("zmq")
    if name == "pong":
        pytest.importorskip("ale_py")
    monkeypatch.chdir(tmp_path)

    found = run(name, steps=steps, overrides=overrides)

    assert found["env_step"] >= steps and found["train_iter"] > 0
    assert found["mean_batch"] >= 1 and 0 < found["p50_ms"] <= found["p99_ms"]
    assert found["failures"] == 0


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_what_was_recorded_with_central_inference_reaches_the_bar_beside_serial(path: Path) -> None:
    found, name = json.loads(path.read_text()), path.stem.removesuffix("_seed")
    serial = serial_of(name)

    assert found["mode"] == "seed" and found["overrides"] == serial["overrides"]
    assert found["config"] == serial["config"] and found["episodes"] == serial["episodes"]
    assert found["median_eval_value"] >= bar_of(name)
    if name == "cartpole_rainbow":
        assert len(found["runs"]) == 5
        assert found["median_env_step"] <= MOST * serial["median_env_step"]
