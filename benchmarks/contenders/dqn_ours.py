"""Our DQN end to end: the parts of the serial pipeline, hooks and logs at their defaults."""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import tempfile

from benchmarks.common import Clock, emit_rates

STEPS = 20000


def configs(steps: int) -> tuple[dict, dict]:
    """Return the work of the README as a config."""
    main = dict(
        exp_name="bench",
        env=dict(env_id="CartPole-v1", collector_env_num=8, evaluator_env_num=1, n_evaluator_episode=1),
        policy=dict(
            discount_factor=0.99,
            double=False,
            nstep=1,
            random_collect_size=1000,
            model=dict(encoder_hidden_size_list=[128, 128, 64], dueling=False, head_layer_num=0),
            learn=dict(update_per_collect=1, batch_size=64, learning_rate=1e-3, target_update_freq=500, loss="huber"),
            collect=dict(n_sample=8),
            eval=dict(evaluator=dict(eval_freq=10**9)),
            other=dict(
                eps=dict(type="linear", start=1.0, end=0.1, decay=steps // 2),
                replay_buffer=dict(replay_buffer_size=100000),
            ),
        ),
        # The points to resume from cost the same whatever a run does in between; they are measured apart.
        resume=dict(save_every_s=1e9),
    )
    return main, dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="dqn"))


def run(steps: int, backend: str) -> tuple[Clock, int, int]:
    """Train once in a temporary folder; the clock covers the loop, not building and not the last evaluation."""
    from ding_like.config import compile_config
    from ding_like.pipeline.build import build_serial, training_process
    from ding_like.pipeline.serial import learn_off_policy, random_collect

    main, create = configs(steps)
    main["policy"]["learn"]["backend"] = backend
    cfg = compile_config(main, create, seed=0)
    with training_process():
        parts = build_serial(cfg, seed=0)
        learner, collector = parts.learner, parts.collector
        clock = Clock()
        learner.call_hook("before_run")
        random_collect(cfg.policy, parts.policy, collector, parts.collector_env, parts.commander, parts.replay_buffer)
        while collector.envstep < steps:
            setting = parts.commander.step()
            batch = collector.collect(train_iter=learner.train_iter, policy_kwargs=setting)
            learn_off_policy(cfg, parts, batch)
        clock.stop()
        done = clock, collector.envstep, learner.train_iter
        parts.close()
    return done


def main() -> None:
    """Print the rates, or a profile."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--backend", default="auto", choices=["auto", "autograd"])
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        if args.profile:
            profile = cProfile.Profile()
            profile.runcall(run, args.steps, args.backend)
            pstats.Stats(profile).sort_stats("tottime").print_stats(40)
            return
        emit_rates("ours", *run(args.steps, args.backend))
        os.chdir("/")


if __name__ == "__main__":
    main()
