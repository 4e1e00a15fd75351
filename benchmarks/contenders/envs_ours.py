"""A loop over one of our env managers with 8 lanes: bare, or through the collectors' loop into a replay buffer."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import closing
from typing import Any

from benchmarks.common import Clock, emit_versions  # isort: skip  (pins the threads first)

import numpy as np

from benchmarks.contenders.envs import MAKERS, NUM_LANES, WARM_CALLS, random_actions
from ding_like.data.batch import TransitionBatch
from ding_like.data.rollout import Rollout
from ding_like.envs import EnvFactory, create_env_manager
from ding_like.types import Array, EnvManager
from ding_like.worker import create_buffer
from ding_like.worker.collector.loop import RolloutLoop

PONG = dict(type="gymnasium", env_id="ALE/Pong-v5", kwargs=dict(frameskip=1), wrappers=[dict(type="atari")])
_PUSH_CALLS = 32


class Repeat:
    """Act by a table of actions, in turn."""

    def __init__(self, actions: Array) -> None:
        self._actions = actions
        self._count = 0

    def act(self, obs: Any, *, lanes: Array, **kwargs: Any) -> dict[str, Array]:
        """Return the next row of actions."""
        self._count += 1
        return {"action": self._actions[self._count % len(self._actions)][lanes]}

    def reset(self, lanes: Array | None = None) -> None:
        """Keep the place in the table."""

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: there is nothing to resume."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take nothing over."""


def bare(manager: EnvManager, actions: Array) -> Callable[[int], None]:
    """Return a function that steps so often and stores nothing."""
    lanes = np.arange(NUM_LANES)

    def step_times(calls: int) -> None:
        for count in range(calls):
            manager.step(lanes, actions[count % len(actions)])

    return step_times


def storing(manager: EnvManager, actions: Array) -> Callable[[int], None]:
    """Return a function that steps so often and stores every transition."""
    loop = RolloutLoop(manager, Repeat(actions), rng=np.random.default_rng(0))
    buffer = create_buffer(dict(type="naive", replay_buffer_size=100_000), rng=np.random.default_rng(0))

    def all_rows(rollout: Rollout) -> tuple[TransitionBatch, Array]:
        return TransitionBatch(rollout.columns()), np.zeros(NUM_LANES, np.int64)

    def step_times(calls: int) -> None:
        for count in range(1, calls + 1):
            loop.step({})
            if count % _PUSH_CALLS == 0 or count == calls:
                buffer.push(loop.take(all_rows), cur_collector_envstep=loop.env_steps)

    return step_times


def main() -> None:
    """Step and print the rates, or a profile."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--manager", default="subprocess", help="the env manager")
    parser.add_argument("--env", default="busy", choices=[*MAKERS, "pong"])
    parser.add_argument("--store", action="store_true", help="store every transition in a replay buffer")
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    args = parser.parse_args()
    make = EnvFactory(PONG) if args.env == "pong" else MAKERS[args.env]
    clock = Clock(profile=args.profile)
    with closing(create_env_manager(dict(type=args.manager), [make] * NUM_LANES)) as manager:
        actions = random_actions(int(manager.action_space.n))
        manager.seed(0)
        manager.launch()
        step_times = (storing if args.store else bare)(manager, actions)
        step_times(WARM_CALLS)
        calls = args.steps // NUM_LANES
        clock.start()
        step_times(calls)
        clock.stop()
    clock.report(calls * NUM_LANES)
    emit_versions("numpy", "gymnasium", *(["ale-py"] if args.env == "pong" else []))


if __name__ == "__main__":
    main()
