"""Run an Atari game's first 20,000 env steps and R2D2 without velocities with central inference; write what happened.

python -m tests.learning.seed_runs --out docs/reports/seed_runs.json [--only pong] [--steps 20000]

Pong needs the extra `atari`. It only has to run: no algorithm learns to play it within 20,000 steps.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.provenance import DirtyTreeError, provenance
from ding_like.entry import seed_pipeline

ZOO = Path(__file__).parents[2] / "dizoo"


class Task(NamedTuple):
    """Config to run, and for how many env steps."""

    what: str
    config: Path
    steps: int
    overrides: tuple[str, ...]


TASKS = {
    "pong": Task(
        "Rainbow, Pong, 2 processes x 4 actor threads",
        ZOO / "atari/config/pong_rainbow_config.py",
        20_000,
        ("system.seed.actor_processes=2", "system.seed.actor_threads=4"),
    ),
    "hidden_r2d2": Task(
        "R2D2, CartPole with velocities hidden, 2 actor threads",
        ZOO / "classic_control/cartpole/config/cartpole_hidden_r2d2_config.py",
        100_000,
        (),
    ),
}


def run(name: str, *, steps: int | None = None, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Run one task in this folder and return what it did; `steps` stand in place of the task's own."""
    task = TASKS[name]
    steps = task.steps if steps is None else steps
    given = [*task.overrides, *overrides]
    seed_pipeline(str(task.config), seed=0, exp_name=name, max_env_step=steps, overrides=given)
    return {"what": task.what, "config": task.config.name, **read(Path(name))}


def read(folder: Path) -> dict[str, Any]:
    """Return what the files of a finished run say of it."""
    result = json.loads((folder / "result.json").read_text())
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    training_s = result["duration_s"] - result["eval_duration_s"]
    failures = folder / "failures.jsonl"
    return {
        "env_step": result["env_step"],
        "train_iter": result["train_iter"],
        "eval_value": result["eval_value"],
        "is_solved": result["stop"],
        "duration_s": round(result["duration_s"], 1),
        "env_steps_per_s": round(result["env_step"] / training_s, 1),
        "mean_batch": _median(lines, "mean_batch"),
        "p50_ms": _median(lines, "inference_p50_ms"),
        "p99_ms": _median(lines, "inference_p99_ms"),
        "queue_depth": _median(lines, "queue_depth"),
        "policy_lag": _median(lines, "PolicyLag"),
        "data_age_s": _median(lines, "data_age_s"),
        "failures": len(failures.read_text().splitlines()) if failures.exists() else 0,
    }


def _median(lines: Sequence[dict[str, Any]], name: str) -> float:
    """Return the median over a run of a metric of collecting. Raises ValueError if no line has it."""
    values = [float(line[name]) for line in lines if line["source"] == "collector" and name in line]
    if not values:
        raise ValueError(f"no line of metrics.jsonl tells {name}")
    return round(statistics.median(values), 3)


def main() -> None:
    """Parse the command line, run and write; tasks that are not chosen keep what the file says of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--steps", type=int, help="env steps (default: each task's own)")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--allow-dirty", action="store_true", help="record a tree that differs from its commit too")
    args = parser.parse_args()
    try:
        code = provenance(allow_dirty=args.allow_dirty)
    except DirtyTreeError as error:
        sys.exit(f"tests.learning.seed_runs: {error}")
    out = args.out.resolve()
    runs = json.loads(out.read_text())["runs"] if out.is_file() else {}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name in args.only:
            runs[name] = {**code.to_plain(), **run(name, steps=args.steps)}
            sys.stdout.write(f"{name}: {json.dumps(runs[name], indent=1)}\n")
            ordered = {task: runs[task] for task in TASKS if task in runs}
            out.write_text(json.dumps({**code.to_plain(), "runs": ordered}, indent=1) + "\n")
        os.chdir("/")


if __name__ == "__main__":
    main()
