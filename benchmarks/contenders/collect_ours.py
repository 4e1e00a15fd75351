"""Our sample collector: act with the MLP, step 8 CartPole in process, store every transition."""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import tempfile

from benchmarks.common import Clock, emit_rates
from benchmarks.contenders.dqn_ours import configs


def run(steps: int, manager: str) -> tuple[Clock, int]:
    """Collect `steps` env steps in chunks of 256, as SB3 does below, after a warm-up."""
    from ding_like.config import compile_config
    from ding_like.pipeline.build import build_serial, training_process

    main, create = configs(20000)
    create["env_manager"]["type"] = manager
    main["policy"]["collect"]["n_sample"] = 256
    cfg = compile_config(main, create, seed=0)
    with training_process():
        parts = build_serial(cfg, seed=0)
        collector, buffer = parts.collector, parts.replay_buffer
        for _ in range(4):
            buffer.push(collector.collect(policy_kwargs={"eps": 0.0}), collector.envstep)
        first = collector.envstep
        clock = Clock()
        while collector.envstep - first < steps:
            buffer.push(collector.collect(policy_kwargs={"eps": 0.0}), collector.envstep)
        clock.stop()
        done = clock, collector.envstep - first
        parts.close()
    return done


def main() -> None:
    """Print the rates, or a profile."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100000)
    parser.add_argument("--manager", default="base")
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        if args.profile:
            profile = cProfile.Profile()
            profile.runcall(run, args.steps, args.manager)
            pstats.Stats(profile).sort_stats("tottime").print_stats(30)
            return
        emit_rates("ours", *run(args.steps, args.manager))
        os.chdir("/")


if __name__ == "__main__":
    main()
