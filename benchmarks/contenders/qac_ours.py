"""Our SAC and TD3 end to end on Pendulum: `serial_pipeline` with hooks and logs at their defaults."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.common import Clock, emit, emit_versions  # isort: skip  (pins the threads first)

from benchmarks.contenders import qac_work as work
from benchmarks.contenders.dqn_ours import ClockHook
from ding_like.entry import serial_pipeline
from ding_like.worker import register_learner_hook


def main() -> None:
    """Train once and print the rates, or a profile."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--policy", choices=["sac", "td3"], required=True)
    parser.add_argument("--steps", type=int, default=work.STEPS)
    parser.add_argument("--backend", default="auto", choices=["auto", "autograd"])
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    args = parser.parse_args()
    ClockHook.clock = Clock(profile=args.profile)
    ClockHook.updates = args.steps - work.RANDOM_STEPS
    register_learner_hook("clock", ClockHook)
    hooks = {f"clock_{position}": True for position in ("before_run", "after_iter")}
    main_config = dict(
        exp_name="bench",
        env=dict(
            env_id=work.ENV,
            collector_env_num=work.NUM_ENVS,
            evaluator_env_num=10,
            n_evaluator_episode=work.EPISODES,
        ),
        policy=dict(
            discount_factor=work.GAMMA,
            random_collect_size=work.RANDOM_STEPS,
            model=dict(actor_head_hidden_size=work.HIDDEN, critic_head_hidden_size=work.HIDDEN),
            learn=dict(
                update_per_collect=work.NUM_ENVS,
                batch_size=work.BATCH_SIZE,
                learning_rate=work.LEARNING_RATE,
                target_theta=work.TAU,
                backend=args.backend,
                learner=dict(hook=hooks),
            ),
            collect=dict(n_sample=work.NUM_ENVS),
            other=dict(replay_buffer=dict(replay_buffer_size=100_000)),
        ),
    )
    create_config = dict(
        env=dict(type="gymnasium"),
        env_manager=dict(type="base"),
        policy=dict(type=args.policy),
        evaluator=dict(type="never"),
    )
    serial_pipeline((main_config, create_config), seed=0, max_env_step=args.steps)
    ClockHook.clock.report(ClockHook.env_steps, updates=ClockHook.updates)
    # A folder of that name from before makes the run take another.
    result = max(Path().glob("bench*/result.json"), key=lambda path: path.stat().st_mtime)
    emit("return", round(json.loads(result.read_text())["eval_value"], 1), "")
    emit_versions("torch", "numpy", "gymnasium")


if __name__ == "__main__":
    main()
