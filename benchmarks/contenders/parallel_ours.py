"""DQN in one process, with a coordinator, collectors and a learner, or with collectors on Ray.

The shipped CartPole config each time.

The clock runs from the first update to the last, evaluations of the config included; what comes before it, processes
starting and random steps, is apart. A serial run measures what its learner takes of that: with as many processors as
are there, no way to run can be faster than `bound` times serial, as the learner is one process.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.common import emit, emit_versions  # isort: skip  (pins the threads first)
from benchmarks.contenders.begun import STARTED_S  # isort: skip

import numpy as np

from ding_like.config import read_config
from ding_like.entry import parallel_pipeline, ray_pipeline, serial_pipeline
from ding_like.worker import BaseLearner, LearnerHook, register_learner_hook

CONFIG = Path(__file__).parents[2] / "dizoo/classic_control/cartpole/config/cartpole_dqn_config.py"
_SLOW = "benchmarks.contenders.slow_env:"


class ClockHook(LearnerHook):
    """Note when the first and the last update ended, and sum what the updates between take."""

    first_s = last_s = begun_s = learn_s = 0.0
    counts: ClassVar[dict[float, int]] = {}  # of env steps, by the seconds at which an update ended

    def __call__(self, engine: BaseLearner) -> None:
        now_s = time.perf_counter()
        if self.position == "before_iter":
            ClockHook.begun_s = now_s
            return
        ClockHook.learn_s += now_s - ClockHook.begun_s if ClockHook.first_s else 0.0
        ClockHook.last_s = now_s
        ClockHook.first_s = ClockHook.first_s or now_s
        ClockHook.counts[now_s] = engine.collector_envstep


def main() -> None:
    """Train once and print the rates."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--mode", choices=["serial", "parallel", "ray"], default="parallel")
    parser.add_argument("--env", default="cartpole", help="cartpole, or an env of slow_env such as Busy500us-v0")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--no-evaluation", action="store_true", help="evaluate before and after training only")
    parser.add_argument("--lanes", type=int, help="envs of a collector (default: the config's)")
    parser.add_argument("--steps-per-update", type=int, help="env steps for each update (default: the config's)")
    args = parser.parse_args()
    file = read_config(CONFIG)
    main_config: Any = file.main_config
    main_config.exp_name = "bench"
    main_config.env.update(
        env_id="CartPole-v1" if args.env == "cartpole" else _SLOW + args.env, stop_value=float("inf")
    )
    if args.no_evaluation:
        main_config.policy.eval = dict(evaluator=dict(eval_freq=10**9))
    policy = main_config.policy
    if args.lanes is not None:
        main_config.env.collector_env_num = args.lanes
    if args.steps_per_update is not None:
        policy.learn.update_per_collect, policy.random_collect_size = 1, 2 * policy.learn.batch_size
        policy.collect.n_sample = args.steps_per_update
    configs = main_config, file.create_config
    begun_s = time.perf_counter()
    if args.mode != "parallel":
        # On Ray the learner is in this process too.
        register_learner_hook("clock", ClockHook)
        main_config.policy.learn.learner = dict(hook=dict(clock_before_iter=True, clock_after_iter=True))
        if args.mode == "ray":
            ray_pipeline(configs, seed=0, max_env_step=args.steps, workers=args.workers)
        else:
            serial_pipeline(configs, seed=0, max_env_step=args.steps)
        train_s, startup_s = ClockHook.last_s - ClockHook.first_s, ClockHook.first_s - STARTED_S
    else:
        parallel_pipeline((*configs, dict(num_collectors=args.workers)), seed=0, max_env_step=args.steps)
        found = _result()
        train_s = found["train_s"]
        startup_s = found["startup_s"] + begun_s - STARTED_S
    warmup = int(main_config.policy.random_collect_size)
    if args.steps_per_update is not None:  # a short run, in which what collectors were ahead would count for much
        emit("env_steps_wall", round(_collected_rate(is_here=args.mode != "parallel"), 1), "steps/s")
    else:
        report(_result(), warmup=warmup, train_s=train_s, startup_s=startup_s)
    if args.mode == "serial":
        emit("bound", round(train_s / max(ClockHook.learn_s, train_s / (os.cpu_count() or 1)), 3), "ratio")
    emit_versions("torch", "numpy", "gymnasium")


def _collected_rate(*, is_here: bool) -> float:
    """Return the env steps a second since the first update, without those that collectors were ahead by then.

    It is the slope of a line through the counts of env steps between the first update and the end of collecting. Of a
    learner in another process they are the coordinator's, one a second.
    """
    counts: dict[float, int] = ClockHook.counts
    if not is_here:
        lines = [json.loads(line) for line in Path("bench/metrics.jsonl").read_text().splitlines()]
        counts = {line["time_s"]: line["env_step"] for line in lines if line["train_iter"] > 0}
    final = max(counts.values())
    time_s, steps = np.array([(time_s, step) for time_s, step in counts.items() if step < final]).T
    return float(np.polyfit(time_s - time_s[0], steps, 1)[0])


def report(result: dict[str, Any], *, warmup: int, train_s: float, startup_s: float) -> None:
    """Print the rates of a run that has written its result."""
    steps = result["env_step"] - warmup
    emit("env_steps_wall", round(steps / train_s, 1), "steps/s")
    emit("updates_per_step", round(result["train_iter"] / steps, 4), "")
    emit("startup", round(startup_s, 2), "s")
    emit("whole_runs", round(3600 / (startup_s + train_s), 1), "runs/h")


def _result() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path("bench/result.json").read_text())
    return found


if __name__ == "__main__":
    main()
