"""Lay out runs that were recorded: DQN and PPO on CartPole, five seeds each, a few thousand env steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ding_like.report.experiment import SeedsPlan
from tests.report.run_folder import write_run

RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("recorded_runs.json").read_text())


def scores_of(name: str) -> list[float]:
    return [run["result"]["eval_value"] for run in RECORDED[name]["runs"]]


def write_recorded(folder: Path, name: str) -> Path:
    """Write the folder of `dqn` or `ppo` with its five seeds and return it."""
    for run in RECORDED[name]["runs"]:
        lines = [
            {"source": "evaluator", **dict(zip(RECORDED["columns"], row, strict=True))} for row in run["evaluations"]
        ]
        write_run(
            folder / name / f"seed{run['seed']}",
            lines,
            seed=run["seed"],
            stop_value=1e9,
            result=run["result"],
            policy=name,
        )
    command = RECORDED[name]["command"]
    SeedsPlan(tuple(range(5)), "serial", command, "c.py", "00", (), (), 8000, 10**10).save(folder / name)
    return folder / name
