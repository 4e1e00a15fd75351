"""Ours on Ray (`ray_pipeline`): the same PPO work as RLlib, or shipped configs until CartPole is solved."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.contenders import ray_work as work
from benchmarks.contenders.ray_work import BATCH, EPISODES, LANES, SOLVED, UPDATES, mark

MODULE = "ray_ours"
CONFIGS = Path(__file__).parents[2] / "dizoo/classic_control/cartpole/config"
TUNED = {"ppo": CONFIGS / "cartpole_ppo_config.py", "impala": CONFIGS / "cartpole_impala_config.py"}


def run_work(steps: int, *, workers: int, overrides: list[str]) -> None:
    """Train for so many env steps; the first batch comes before the clock."""
    from benchmarks.contenders.ppo_ours import configs
    from ding_like.entry import ray_pipeline
    from ding_like.worker import BaseLearner, LearnerHook, register_learner_hook

    batches = steps // BATCH

    class MarkHook(LearnerHook):
        """Hook that records when the first and the last batch were trained on; it runs before the count goes up."""

        def __call__(self, engine: BaseLearner) -> None:
            updates = engine.train_iter + 1
            if updates in (UPDATES, batches * UPDATES):
                name = "started" if updates == UPDATES else "trained"
                mark(name, env_steps=engine.collector_envstep, updates=updates)

    register_learner_hook("mark", MarkHook)
    main, create = configs()
    main["env"]["collector_env_num"] = LANES // max(workers, 1)  # of each worker
    main["policy"]["learn"]["learner"] = dict(hook=dict(mark_after_iter=True))
    ray_pipeline((main, create), seed=0, max_env_step=batches * BATCH, overrides=overrides, workers=workers)


def run_solve(config: Path, *, workers: int, overrides: list[str], seed: int, limit: int) -> None:
    """Train with a shipped config until an evaluation of `EPISODES` episodes has a mean of `SOLVED`."""
    from ding_like.entry import ray_pipeline

    overrides = [f"env.stop_value={SOLVED}", f"env.n_evaluator_episode={EPISODES}", *overrides]
    ray_pipeline(str(config), seed=seed, max_env_step=limit, overrides=overrides, exp_name="bench", workers=workers)
    result: dict[str, Any] = json.loads(Path("bench/result.json").read_text())
    mark("done", solved=result["stop"], env_steps=result["env_step"], mean_return=result["eval_value"])


def run_inside(args: argparse.Namespace) -> None:
    """Do the work in a cluster of one's own, as `ding -m ray` does.

    The extra `ray` brings nothing to draw with, so runs have no pictures; RLlib makes none either.
    """
    sys.modules.update(matplotlib=None, PIL=None)  # type: ignore[arg-type]  # None: cannot be imported
    work.be_measured()
    overrides: list[str] = []
    if args.solve is None:
        run_work(args.steps, workers=args.workers, overrides=overrides)
    else:
        config = TUNED[args.solve]
        run_solve(config, workers=args.workers, overrides=overrides, seed=args.seed, limit=args.steps)


if __name__ == "__main__":
    work.run(MODULE, __doc__, run_inside, solve=TUNED)
