"""The work of the `updates_*` benchmarks, the same for all libraries; imports none of our modules but the clock's.

An update is: sample a batch from a full replay buffer, compute the gradient, take a step of Adam; by priority, also
write the new priorities back. What fills the buffer is made up: a network of this size takes as long on any numbers.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from benchmarks.common import Clock, emit, emit_versions  # isort: skip  (pins the threads first)

import numpy as np
import torch

HIDDEN = (128, 128, 64)
NUM_LANES, ROWS, EPISODE_STEPS = 8, 20_000, 200
BATCH_SIZE, NSTEP, GAMMA, LEARNING_RATE, TARGET_UPDATE_FREQ = 64, 3, 0.99, 1e-3, 500
V_MIN, V_MAX, NUM_ATOMS = -10.0, 10.0, 51
NUM_QUANTILES = 64  # of QR-DQN
NUM_FRACTIONS, NUM_COSINES = 32, 64  # of IQN and FQF
ALPHA, BETA = 0.6, 0.4
SEQUENCE_STEPS, LSTM_SIZE = 40, 128  # of R2D2 and DRQN
OBS_SIZE, NUM_ACTIONS = 4, 2

_WARM_UPDATES = 50


class Step(NamedTuple):
    """Step of all lanes: [E, ...] each."""

    obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    next_obs: np.ndarray
    terminated: np.ndarray


def lane_steps(rows: int = ROWS) -> Iterator[Step]:
    """Yield steps of all lanes until there are this many rows, in episodes of `EPISODE_STEPS`."""
    rng = np.random.default_rng(0)
    obs = draw_obs(rng, NUM_LANES)
    for time in range(rows // NUM_LANES):
        next_obs = draw_obs(rng, NUM_LANES)
        action = rng.integers(NUM_ACTIONS, size=NUM_LANES)
        terminated = np.full(NUM_LANES, (time + 1) % EPISODE_STEPS == 0)
        yield Step(obs, action, np.ones(NUM_LANES, np.float32), next_obs, terminated)
        obs = next_obs


def draw_obs(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Return observations of CartPole's size."""
    return rng.uniform(-1, 1, (*shape, OBS_SIZE)).astype(np.float32)


def main(makers: dict[str, Callable[[], Callable[[int], None]]], packages: Sequence[str]) -> None:
    """Time the updates of one algorithm; a maker returns what does this many of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--algorithm", required=True, choices=makers)
    parser.add_argument("--steps", type=int, default=2_000, help="updates (%(default)s)")
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    update = makers[args.algorithm]()
    update(_WARM_UPDATES)
    clock = Clock(profile=args.profile)
    clock.start()
    update(args.steps)
    clock.stop()
    if args.profile:
        clock.show_profile()
        return
    emit("updates_cpu", round(args.steps / clock.cpu_s, 1), "updates/cpu-s")
    emit("updates_wall", round(args.steps / clock.wall_s, 1), "updates/s")
    emit_versions(*packages, "torch", "numpy")
