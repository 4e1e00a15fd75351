"""Train a shipped config over several seeds and write what a fresh evaluation of each last model says.

python -m tests.learning.record CONFIG --seeds 5 --out docs/learning/NAME.json [--mode serial] [KEY=VALUE ...]

Seeds recorded by processes of their own (`--first-seed`) become one file, if all else was the same, by

python -m tests.learning.record --join PART.json PART.json --out docs/learning/NAME.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.provenance import DirtyTreeError, provenance
from ding_like.config import read_config
from ding_like.entry import eval as evaluate
from ding_like.entry import (
    parallel_pipeline,
    ray_pipeline,
    seed_pipeline,
    serial_pipeline,
    serial_pipeline_bc,
    serial_pipeline_onpolicy,
    serial_pipeline_preference_based_irl_onpolicy,
)
from tests.learning.experts import EXPERTS, make_expert

NO_LIMIT = 10**10  # env steps
PIPELINES = {
    "serial": serial_pipeline,
    "serial_onpolicy": serial_pipeline_onpolicy,
    "serial_bc": serial_pipeline_bc,
    "serial_trex_onpolicy": serial_pipeline_preference_based_irl_onpolicy,  # its expert is trained first
    "parallel": parallel_pipeline,
    "ray": ray_pipeline,  # two workers
    "seed": seed_pipeline,  # two actor threads, each in a process
}


def record(
    config: Path,
    *,
    mode: str,
    seeds: int,
    episodes: int,
    env_step: int,
    overrides: list[str],
    first_seed: int = 0,
    expert: str | None = None,
) -> list[dict[str, Any]]:
    """Return a row per seed: `eval_value` is the mean of `episodes` fresh episodes of the last model.

    `expert` names the one in `tests.learning.experts` that the config learns from; it is made first.
    """
    rows = []
    if expert is not None:
        make_expert(expert)
    for seed in range(first_seed, first_seed + seeds):
        started, cpu_started = time.perf_counter(), cpu_seconds()
        with patch("ding_like.entry.training.write_pictures"):  # what a picture takes is no training
            PIPELINES[mode](str(config), seed=seed, exp_name=f"seed{seed}", max_env_step=env_step, overrides=overrides)
        wall_s, cpu_s = time.perf_counter() - started, cpu_seconds() - cpu_started
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
                cpu_s=round(cpu_s, 2),
                version=result["versions"]["ding_like"],
                history=evaluations(Path(f"seed{seed}/metrics.jsonl")),
            )
        )
        sys.stdout.write(f"{ {name: value for name, value in rows[-1].items() if name != 'history'} }\n")
    return rows


def cpu_seconds() -> float:
    """Return the processor time that this process and its children that have ended took so far."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def evaluations(path: Path) -> list[list[float]]:
    """Return [env step, mean return] of a finished run's evaluations, in order, but for the closing one.

    Of a run that collects nothing it is [update, mean return]. The closing one is the result's `eval_value`: it stops
    no run, and has another number of episodes.
    """
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    found = [line for line in lines if line["source"] == "evaluator"][:-1]
    return [[line["env_step"] or line["train_iter"], round(line["reward_mean"], 2)] for line in found]


def summarised(said: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what a file holds: what was run, medians and extremes over the seeds, and their rows."""
    return dict(
        **said,
        median_eval_value=statistics.median(row["eval_value"] for row in rows),
        worst_eval_value=min(row["eval_value"] for row in rows),
        median_env_step=statistics.median(row["env_step"] for row in rows),
        most_env_steps=max(row["env_step"] for row in rows),
        runs=rows,
    )


def joined(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the file of all seeds from files of some each, in order of the seeds.

    Raises ValueError unless config, settings and commit are the same in all of them and no seed is there twice.
    """
    rows = sorted((row for part in parts for row in part["runs"]), key=lambda row: row["seed"])
    first, *others = [{name: part[name] for name in part if name not in summarised({}, rows)} for part in parts]
    for other in others:
        differing = [name for name in {**first, **other} if first.get(name) != other.get(name)]
        if differing:
            raise ValueError(f"parts that differ in {', '.join(differing)} are not one recording")
    seeds = [row["seed"] for row in rows]
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"a seed is there twice: {seeds}")
    return summarised(first, rows)


def main() -> None:
    """Parse the command line, train and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path, nargs="?")
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--join", type=Path, nargs="+", metavar="PART", help="make one file of recorded parts instead")
    parser.add_argument("--mode", default="serial", choices=list(PIPELINES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--env-step", type=int, default=NO_LIMIT)
    parser.add_argument("--expert", choices=list(EXPERTS), help="make this expert first, from which the config learns")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--allow-dirty", action="store_true", help="record a tree that differs from its commit too")
    args = parser.parse_args()
    if args.join:
        _write(args.out, joined([json.loads(path.read_text()) for path in args.join]))
        return
    if args.config is None:
        parser.error("name a config, or recorded parts with --join")
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
            first_seed=args.first_seed,
            expert=args.expert,
        )
        os.chdir("/")
    said = dict(
        config=config.name,
        mode=args.mode,
        overrides=args.overrides,
        episodes=args.episodes,
        **({} if args.expert is None else {"expert": args.expert}),
        limit_env_step=None if args.env_step == NO_LIMIT else args.env_step,
        **code.to_plain(),
    )
    _write(out, summarised(said, rows))


def _write(path: Path, summary: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(as_text(summary))


def as_text(summary: dict[str, Any]) -> str:
    """Return JSON with one line a run, so that a change shows."""
    head = json.dumps({name: value for name, value in summary.items() if name != "runs"}, indent=1)
    runs = ",\n  ".join(json.dumps(run) for run in summary["runs"])
    return f'{head[:-2]},\n "runs": [\n  {runs}\n ]\n}}\n'


if __name__ == "__main__":
    main()
