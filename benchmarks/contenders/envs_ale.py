"""A bare loop over ALE's own vector env: 8 x Pong, frames prepared in its threads, storing nothing."""

from __future__ import annotations

import argparse

from benchmarks.common import Clock, emit_versions  # isort: skip  (pins the threads first)

from ale_py.vector_env import AtariVectorEnv

from benchmarks.contenders.envs import NUM_LANES, WARM_CALLS, random_actions


def main() -> None:
    """Step and print the rates; the step in which a lane is only reset counts too."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=320_000)
    args = parser.parse_args()
    # What our wrapper 'atari' does by default.
    envs = AtariVectorEnv("pong", NUM_LANES, reward_clipping=True, use_fire_reset=False, noop_max=30)
    actions = random_actions(envs.single_action_space.n)  # type: ignore[attr-defined]  # a Discrete space
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
    emit_versions("ale-py", "numpy", "gymnasium")


if __name__ == "__main__":
    main()
