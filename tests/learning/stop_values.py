"""Run config files of DI-engine's published package unchanged towards their own stop_value; write what became of each.

pip download --no-deps DI-engine==0.5.3 && unzip -q DI_engine-0.5.3-py3-none-any.whl -d package
python -m tests.learning.stop_values package/dizoo --out docs/reports/di_engine_stop_values.json [--only pendulum]

Each file runs by its user's command line, without and with DI-engine's defaults (`--di-engine`), from two seeds. Its
documentation gives no budget: the pages 13_envs/cartpole, pendulum and lunarlander have a stop_value and a curve, over
episodes and without figures. `limit_env_step` is ours.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.provenance import DirtyTreeError, provenance
from ding_like.config import read_config
from tests.learning.record import evaluations

ROOT = Path(__file__).parents[2]
SEEDS = 2
SWITCHES = ((), ("--di-engine",))
TIMEOUT_S = 3600.0  # of one run


class Task(NamedTuple):
    """File of DI-engine's zoo, how it is run, and for how many env steps at most."""

    config: str
    mode: str
    env_step: int


_CARTPOLE = "classic_control/cartpole/config/cartpole"
_PENDULUM = "classic_control/pendulum/config/pendulum"
_LUNARLANDER = "box2d/lunarlander/config/lunarlander"
TASKS = (
    Task(f"{_CARTPOLE}_dqn_config.py", "serial", 200_000),
    Task(f"{_CARTPOLE}_ppo_config.py", "serial_onpolicy", 200_000),
    Task(f"{_CARTPOLE}_a2c_config.py", "serial_onpolicy", 200_000),
    Task(f"{_CARTPOLE}_rainbow_config.py", "serial", 200_000),
    Task(f"{_CARTPOLE}_c51_config.py", "serial", 200_000),
    Task(f"{_PENDULUM}_td3_config.py", "serial", 500_000),
    Task(f"{_PENDULUM}_ddpg_config.py", "serial", 500_000),
    Task(f"{_PENDULUM}_sac_config.py", "serial", 500_000),
    Task(f"{_LUNARLANDER}_dqn_config.py", "serial", 1_000_000),
    Task(f"{_LUNARLANDER}_ppo_config.py", "serial_onpolicy", 1_000_000),
)


def rows(zoo: Path, only: str, switches: Sequence[tuple[str, ...]] = SWITCHES) -> Iterator[dict[str, Any]]:
    """Yield a row for each file whose name has `only` in it, each switch and each seed, in order."""
    for task in TASKS:
        for switch in switches:
            for seed in range(SEEDS):
                if only in task.config:
                    yield run(zoo / task.config, task, switch, seed)


def run(config: Path, task: Task, switch: tuple[str, ...], seed: int) -> dict[str, Any]:
    """Run one file in a folder of its own and return what its files say. Raises CalledProcessError if it fails."""
    arguments = ["-m", task.mode, "-c", config.name, *switch]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "ding_like", *arguments, "-s", str(seed), "--env-step", str(task.env_step)]
        command[command.index(config.name)] = str(config)
        started = time.perf_counter()
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        with Path(folder, "log").open("w") as log:
            subprocess.run(
                [*command, "--exp-name", "run"],
                cwd=folder,
                env=env,
                stdout=log,
                stderr=log,
                check=True,
                timeout=TIMEOUT_S,
            )
        wall_s = time.perf_counter() - started
        found = read(Path(folder, "run"))
    return {
        "config": task.config,
        "sha256": hashlib.sha256(config.read_bytes()).hexdigest(),
        "arguments": arguments,
        "seed": seed,
        "limit_env_step": task.env_step,
        **found,
        "wall_s": round(wall_s, 1),
    }


def read(folder: Path) -> dict[str, Any]:
    """Return what the files of a finished run say of it."""
    result = json.loads((folder / "result.json").read_text())
    env = read_config(folder / "total_config.py")[0]["env"]
    history = evaluations(folder / "metrics.jsonl")
    return {
        "env_id": env["env_id"],
        "stop_value": env["stop_value"],
        "reached": result["stop"],
        "env_step": result["env_step"],
        "train_iter": result["train_iter"],
        "best_evaluation": max(value for _, value in history),
        "evaluation_episodes": env["n_evaluator_episode"],
        # Of episodes that no evaluation of the run has seen, as the run tells them at its end.
        "fresh_value": round(result["eval_value"], 2),
        "fresh_episodes": len(result["eval_value_raw"]),
        "history": history,
    }


def main() -> None:
    """Parse the command line, run and write after each run; rows of files that are not run stay as they are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zoo", type=Path, help="folder `dizoo` of the published package")
    parser.add_argument("--only", default="", metavar="TEXT", help="run the files that have this in their path")
    parser.add_argument("--defaults", choices=("ours", "di_engine"), help="run without the switch only, or with it")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--allow-dirty", action="store_true", help="record a tree that differs from its commit too")
    args = parser.parse_args()
    try:
        code = provenance(allow_dirty=args.allow_dirty)
    except DirtyTreeError as error:
        sys.exit(f"tests.learning.stop_values: {error}")
    kept = json.loads(args.out.read_text())["runs"] if args.out.is_file() else []
    switches = {None: SWITCHES, "ours": SWITCHES[:1], "di_engine": SWITCHES[1:]}[args.defaults]
    for row in rows(args.zoo.resolve(), args.only, switches):
        kept = [each for each in kept if _key(each) != _key(row)] + [{**row, **code.to_plain()}]
        kept.sort(key=_key)
        sys.stdout.write(f"{ {name: value for name, value in row.items() if name != 'history'} }\n")
        head = {"package": "DI-engine 0.5.3", "documented_budget": None, **code.to_plain()}
        runs = ",\n  ".join(json.dumps(each) for each in kept)
        args.out.write_text(f'{json.dumps(head, indent=1)[:-2]},\n "runs": [\n  {runs}\n ]\n}}\n')


def _key(row: dict[str, Any]) -> tuple[int, int, int]:
    configs = [task.config for task in TASKS]
    return configs.index(row["config"]), len(row["arguments"]), row["seed"]


if __name__ == "__main__":
    main()
