"""Train a config and, for each of its parts, the config without it, and write how they learned.

python -m tests.learning.ablation rainbow|hidden_r2d2 [--seeds 3] [--env-step 10000] [--jobs 1] [--out FILE]

Nothing stops a run before its last env step. `python -m benchmarks.pages` draws the picture.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from benchmarks.provenance import DirtyTreeError, provenance
from tests.learning.record import record

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "dizoo/classic_control/cartpole/config"
# By config and variant: the overrides that leave a part out.
VARIANTS: dict[str, dict[str, list[str]]] = {
    "rainbow": {
        "Rainbow": [],
        "no double": ["policy.double=False"],
        "no dueling": ["policy.model.dueling=False"],
        "no distributions": ["policy.model.distributional=False"],
        # Epsilon in the place of noise, as in cartpole_dqn_config.py: without either nothing explores.
        "no noise": ["policy.model.noise=False", "policy.other.eps.start=1.0", "policy.other.eps.end=0.02"]
        + ["policy.other.eps.decay=3000"],
        "1-step": ["policy.nstep=1"],
        "no priorities": ["policy.priority=False", "policy.priority_IS_weight=False"],
    },
    "hidden_r2d2": {
        "R2D2": [],
        "gates not normalised": ["policy.model.lstm_type=pytorch"],
        "squared error": ["policy.learn.loss=mse"],
        "one linear head": ["policy.model.dueling=False", "policy.model.head_layer_num=0"],
        "rescaled values": ["policy.learn.value_rescale=True"],
        "8 updates of 64 rows": ["policy.learn.update_per_collect=8", "policy.learn.batch_size=64"]
        + ["policy.learn.target_update_freq=20", "policy.eval.evaluator.eval_freq=125"],
    },
}
NO_STOP = ["env.stop_value=1e9"]


def ablation(config: str, *, seeds: int, episodes: int, env_step: int, jobs: int) -> list[dict]:
    """Return how every variant learned, `jobs` of them trained side by side; call it in an empty folder."""
    settings = dict(config=config, seeds=seeds, episodes=episodes, env_step=env_step)
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as processes:
        return list(processes.map(partial(_variant, **settings), VARIANTS[config]))


def _variant(name: str, *, config: str, seeds: int, episodes: int, env_step: int) -> dict:
    """Train one variant with each seed, in a folder of its own."""
    folder = Path(str(list(VARIANTS[config]).index(name))).resolve()
    folder.mkdir()
    os.chdir(folder)
    sys.stdout.write(f"{name}\n")
    overrides = VARIANTS[config][name]
    settings = dict(seeds=seeds, episodes=episodes, env_step=env_step, overrides=[*NO_STOP, *overrides])
    rows = record(CONFIGS / f"cartpole_{config}_config.py", mode="serial", **settings)
    os.chdir("..")
    return dict(
        name=name,
        overrides=overrides,
        median_eval_value=statistics.median(row["eval_value"] for row in rows),
        # How fast it learned, and how steadily.
        mean_of_evaluations=round(statistics.mean(value for row in rows for _, value in row["history"]), 2),
        runs=rows,
    )


def main() -> None:
    """Parse the command line, train and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", choices=list(VARIANTS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--env-step", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=1, help="variants that are trained side by side")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--allow-dirty", action="store_true", help="record a tree that differs from its commit too")
    args = parser.parse_args()
    try:
        code = provenance(allow_dirty=args.allow_dirty)
    except DirtyTreeError as error:
        sys.exit(f"tests.learning.ablation: {error}")
    out = (args.out or ROOT / f"docs/learning/cartpole_{args.config}_ablation.json").resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        settings = dict(seeds=args.seeds, episodes=args.episodes, env_step=args.env_step, jobs=args.jobs)
        variants = ablation(args.config, **settings)
        os.chdir("/")
    head = dict(config=f"cartpole_{args.config}_config.py", mode="serial")
    head.update(episodes=args.episodes, limit_env_step=args.env_step)
    out.write_text(_text({**head, **code.to_plain(), "variants": variants}))


def _text(summary: dict) -> str:
    """Return JSON with one line a run, so that a change shows."""
    lines = [json.dumps({name: value for name, value in summary.items() if name != "variants"}, indent=1)[:-2]]
    parts = []
    for variant in summary["variants"]:
        head = json.dumps({name: value for name, value in variant.items() if name != "runs"})[:-1]
        runs = ",\n    ".join(json.dumps(run) for run in variant["runs"])
        parts.append(f'  {head}, "runs": [\n    {runs}\n  ]}}')
    return f'{lines[0]},\n "variants": [\n' + ",\n".join(parts) + "\n ]\n}\n"


if __name__ == "__main__":
    main()
