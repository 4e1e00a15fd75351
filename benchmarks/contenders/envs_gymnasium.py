"""A bare loop over gymnasium's AsyncVectorEnv: a process for each of 8 lanes, shared memory, storing nothing."""

from __future__ import annotations

import argparse

from benchmarks.common import Clock, emit_versions  # isort: skip  (pins the threads first)

from gymnasium.vector import AsyncVectorEnv

from benchmarks.contenders.envs import MAKERS, NUM_LANES, WARM_CALLS, random_actions


def main() -> None:
    """Step and print the rates; the step in which a lane is only reset counts too."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--env", default="busy", choices=MAKERS)
    args = parser.parse_args()
    envs = AsyncVectorEnv([MAKERS[args.env]] * NUM_LANES)
    actions = random_actions(2)
    envs.reset(seed=0)

    def step_times(calls: int) -> None:
        for count in range(calls):
            envs.step(actions[count % len(actions)])

    step_times(WARM_CALLS)
    calls = args.steps // NUM_LANES
    clock = Clock()
    clock.start()
    step_times(calls)
    clock.stop()
    envs.close()
    clock.report(calls * NUM_LANES)
    emit_versions("numpy", "gymnasium")


if __name__ == "__main__":
    main()
