"""Play Moving-v0 by a plan that knows the env, and write what it earns: the optimum beside which policies are seen.

python -m tests.learning.hybrid_optimum --out docs/reports/gym_hybrid_moving_optimum.json [--episodes 1000]

The plan turns to the target, accelerates and brakes so that it comes to rest at the target's centre. It is near the
optimum, and a little below it: each of its steps costs 0.001, and a few of the last could be saved by stopping short.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.provenance import DirtyTreeError, provenance
from dizoo.gym_hybrid.envs.field import ACCELERATE, BRAKE, TURN, MovingEnv

# Of Moving-v0, which this plan knows.
MAX_TURN, MAX_ACCELERATION, DELTA_T, BREAK_VALUE = math.pi / 2, 0.5, 0.005, 0.1


class Drive(NamedTuple):
    """Drive from rest to rest: the accelerations [N], and how far and how many steps it goes."""

    accelerations: list[float]
    way: float
    num_steps: int


def drive(num_full: int, last: float) -> Drive:
    """Return what comes of `num_full` full accelerations, one of a share `last`, and braking until the agent stands."""
    accelerations = [1.0] * num_full + [last]
    speed = way = 0.0
    for each in accelerations:
        speed += each * MAX_ACCELERATION
        way += DELTA_T * speed
    num_brakes = 0
    while speed > 0:
        speed = 0.0 if speed < BREAK_VALUE else speed - BREAK_VALUE
        way += DELTA_T * speed
        num_brakes += 1
    return Drive(accelerations, way, len(accelerations) + num_brakes)


# From slow to fast: a way is covered with as few steps as it takes.
DRIVES = [drive(num_full, last) for num_full in range(20) for last in np.linspace(0.0, 1.0, 201)[1:]]


def best_drive(way: float, *, penalty: float = 0.001) -> Drive:
    """Return the drive that earns most on a way to the target's centre."""
    return min(DRIVES, key=lambda drive: abs(drive.way - way) + penalty * drive.num_steps)


def play(seed: int) -> tuple[float, int]:
    """Return (the return of an episode, its steps)."""
    env = MovingEnv()
    env.reset(seed=seed)
    to_target = env.target - env.position
    ahead = (math.atan2(to_target[1], to_target[0]) - env.direction + math.pi) % (2 * math.pi) - math.pi
    first = max(-1.0, min(1.0, ahead / MAX_TURN))  # a turn is a right angle at most
    actions = [(TURN, 0.0, turn) for turn in (first, ahead / MAX_TURN - first) if turn]
    actions += [(ACCELERATE, each, 0.0) for each in best_drive(math.dist(env.target, env.position)).accelerations]
    total, is_over, step = 0.0, False, 0
    while not is_over:
        choice, *args = actions[step] if step < len(actions) else (BRAKE, 0.0, 0.0)
        _, reward, is_over, _, _ = env.step({"action_type": choice, "action_args": np.array(args)})
        total += reward
        step += 1
    return total, step


def main() -> None:
    """Play and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--allow-dirty", action="store_true", help="a tree that differs from its commit, too")
    args = parser.parse_args()
    try:
        code = provenance(allow_dirty=args.allow_dirty)
    except DirtyTreeError as error:
        sys.exit(f"tests.learning.hybrid_optimum: {error}")
    returns, lengths = zip(*(play(seed) for seed in range(args.episodes)), strict=True)
    summary = dict(
        env_id="Moving-v0",
        episodes=args.episodes,
        **code.to_plain(),
        mean_return=round(statistics.mean(returns), 3),
        worst_return=round(min(returns), 3),
        mean_steps=round(statistics.mean(lengths), 1),
    )
    args.out.write_text(json.dumps(summary, indent=1) + "\n")
    sys.stdout.write(f"{summary}\n")


if __name__ == "__main__":
    main()
