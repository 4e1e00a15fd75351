"""Our sample collector: act with the MLP, step 8 CartPole, store every transition in a replay buffer."""

from __future__ import annotations

import argparse

from benchmarks.common import Clock, emit_versions  # isort: skip  (pins the threads first)

from benchmarks.contenders.dqn_ours import configs
from ding_like.config import compile_config
from ding_like.pipeline.components import build_serial
from ding_like.pipeline.process import training_process


def main() -> None:
    """Collect in calls of 256 samples, as the peers do, and print the rates, or a profile."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--manager", default="base", help="the env manager")
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    args = parser.parse_args()
    clock = Clock(profile=args.profile)
    cfg = compile_config(*configs(steps=args.steps, n_sample=256, manager=args.manager), seed=0)
    with training_process():
        parts = build_serial(cfg, seed=0)
        collector, buffer = parts.collector, parts.replay_buffer

        def collect_until(env_step: int) -> None:
            while collector.envstep < env_step:
                samples = collector.collect(policy_kwargs={"eps": 0.0})
                buffer.push(samples, cur_collector_envstep=collector.envstep)

        collect_until(1000)
        warm = collector.envstep
        clock.start()
        collect_until(warm + args.steps)
        clock.stop()
        env_steps = collector.envstep - warm
        parts.close()
    clock.report(env_steps)
    emit_versions("torch", "numpy", "gymnasium")


if __name__ == "__main__":
    main()
