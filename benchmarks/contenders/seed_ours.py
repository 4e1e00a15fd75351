"""Whole runs of one work: central inference with actor threads (`ding -m seed`), or mode parallel.

DQN with the network of Mnih et al. 2015 on an env of an Atari game's size that costs next to nothing, one update of 32
rows for each 32 env steps. The rate is that of the last two thirds of the run: processes that start late have come.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.common import emit, emit_versions  # isort: skip  (pins the threads first)

from ding_like.entry import parallel_pipeline, seed_pipeline

N_SAMPLE = 32
WARMUP = 500
EXP = "bench"


def configs(*, lanes: int) -> tuple[Any, Any]:
    """Return (main_config, create_config) with so many envs for each collector or actor thread."""
    main = dict(
        exp_name=EXP,
        env=dict(
            env_id="benchmarks.contenders.image_env:CheapImage-v0",
            collector_env_num=lanes,
            evaluator_env_num=1,
            n_evaluator_episode=1,
        ),
        policy=dict(
            discount_factor=0.99,
            nstep=1,
            random_collect_size=WARMUP,
            model=dict(dueling=False, head_layer_num=0),
            learn=dict(
                update_per_collect=1,
                batch_size=32,
                learning_rate=1e-4,
                target_update_freq=500,
                learner=dict(hook=dict(log_show_after_iter=10)),
            ),
            collect=dict(n_sample=N_SAMPLE),
            eval=dict(evaluator=dict(eval_freq=10**9)),
            other=dict(
                eps=dict(type="linear", start=0.1, end=0.1, decay=1),
                # 28 KB an observation, two in a row.
                replay_buffer=dict(replay_buffer_size=4000),
            ),
        ),
    )
    return main, dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="dqn"))


def main() -> None:
    """Train once and print the rates."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=["seed", "parallel"], required=True)
    parser.add_argument("--processes", type=int, required=True, help="actor processes, or collectors")
    parser.add_argument("--threads", type=int, default=1, help="actor threads in each process")
    parser.add_argument("--lanes", type=int, default=1, help="envs of each thread, or of each collector")
    parser.add_argument("--steps", type=int, default=12_000)
    args = parser.parse_args()
    given = configs(lanes=args.lanes)
    if args.mode == "seed":
        system = dict(seed=dict(actor_processes=args.processes, actor_threads=args.threads))
        seed_pipeline((*given, system), seed=0, max_env_step=args.steps)
    else:
        parallel_pipeline((*given, dict(num_collectors=args.processes)), seed=0, max_env_step=args.steps)
    report(args.steps)
    emit_versions("torch", "numpy", "gymnasium", "pyzmq")


def report(steps: int) -> None:
    """Print the rate of the last two thirds of the run whose folder is here."""
    lines = [json.loads(line) for line in Path(f"{EXP}/metrics.jsonl").read_text().splitlines()]
    points = [(line["time_s"], line["env_step"], line["train_iter"]) for line in lines if line["source"] == "learner"]
    late = [point for point in points if point[1] >= steps / 3]
    (first_s, first_step, first_iter), (last_s, last_step, last_iter) = late[0], late[-1]
    taken = last_step - first_step
    emit("env_steps_wall", round(taken / (last_s - first_s), 1), "steps/s")
    emit("updates_per_step", round((last_iter - first_iter) / taken, 4), "")


if __name__ == "__main__":
    main()
