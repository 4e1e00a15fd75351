"""Train a shipped config over several seeds and write what a fresh evaluation of each last model says.

python -m tests.learning.record CONFIG --seeds 5 --out docs/learning/NAME.json [--mode serial] [KEY=VALUE ...]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.provenance import DirtyTreeError, provenance
from ding_like.config import read_config
from ding_like.entry import eval as evaluate
from ding_like.entry import parallel_pipeline, ray_pipeline, seed_pipeline, serial_pipeline, serial_pipeline_onpolicy

NO_LIMIT = 10**10  # env steps
PIPELINES = {
    "serial": serial_pipeline,
    "serial_onpolicy": serial_pipeline_onpolicy,
    "parallel": parallel_pipeline,
    "ray": ray_pipeline,  # two workers
    "seed": seed_pipeline,  # two actor threads, each in a process
}


def record(config: Path, *, mode: str, seeds: int, episodes: int, env_step: int, overrides: list[str]) -> list[dict]:
    """Return a row per seed: `eval_value` is the mean of `episodes` fresh episodes of the last model."""
    rows = []
    for seed in range(seeds):
        started = time.perf_counter()
        PIPELINES[mode](str(config), seed=seed, exp_name=f"seed{seed}", max_env_step=env_step, overrides=overrides)
        wall_s = time.perf_counter() - started
        result = json.loads(Path(f"seed{seed}/result.json").read_text())
        newest = Path(f"seed{seed}/ckpt/iteration_{result.get('last_iter', result['train_iter'])}.pth.tar")
        # Another seed than training's: these episodes no evaluation of the run has seen.
        value = evaluate(
            str(config),
            seed=10_000 + seed,
            load_path=str(newest),
            overrides=[*overrides, f"env.n_evaluator_episode={episodes}"],
        )
        rows.append(
            dict(
                seed=seed,
                eval_value=round(value, 2),
                env_step=result["env_step"],
                train_iter=result["train_iter"],
                stop=result["stop"],
                wall_s=round(wall_s, 2),
                history=evaluations(Path(f"seed{seed}/metrics.jsonl")),
            )
        )
        sys.stdout.write(f"{ {name: value for name, value in rows[-1].items() if name != 'history'} }\n")
    return rows


def evaluations(path: Path) -> list[list[float]]:
    """Return [env step, mean return] of a run's evaluations, in order."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [[line["env_step"], round(line["reward_mean"], 2)] for line in lines if line["source"] == "evaluator"]


def main() -> None:
    """Parse the command line, train and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--mode", default="serial", choices=list(PIPELINES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--env-step", type=int, default=NO_LIMIT)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--allow-dirty", action="store_true", help="record a tree that differs from its commit too")
    args = parser.parse_args()
    try:
        code = provenance(allow_dirty=args.allow_dirty)
    except DirtyTreeError as error:
        sys.exit(f"tests.learning.record: {error}")
    config, out = args.config.resolve(), args.out.resolve()
    read_config(config)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        rows = record(
            config,
            mode=args.mode,
            seeds=args.seeds,
            episodes=args.episodes,
            env_step=args.env_step,
            overrides=args.overrides,
        )
        os.chdir("/")
    summary = dict(
        config=config.name,
        mode=args.mode,
        overrides=args.overrides,
        episodes=args.episodes,
        limit_env_step=None if args.env_step == NO_LIMIT else args.env_step,
        **code.to_plain(),
        median_eval_value=statistics.median(row["eval_value"] for row in rows),
        worst_eval_value=min(row["eval_value"] for row in rows),
        median_env_step=statistics.median(row["env_step"] for row in rows),
        most_env_steps=max(row["env_step"] for row in rows),
        runs=rows,
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(_text(summary))


def _text(summary: dict) -> str:
    """Return JSON with one line a run, so that a change shows."""
    head = json.dumps({name: value for name, value in summary.items() if name != "runs"}, indent=1)
    runs = ",\n  ".join(json.dumps(run) for run in summary["runs"])
    return f'{head[:-2]},\n "runs": [\n  {runs}\n ]\n}}\n'


if __name__ == "__main__":
    main()
