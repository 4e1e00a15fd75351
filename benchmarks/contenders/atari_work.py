"""The work of the `atari_*` benchmarks, for all contenders; imports no package of ours.

Pong at four frames an env step, 8 envs, grey stacks [4, 84, 84], the network of Mnih et al. 2015 with one linear layer
after it. DQN: batches of 32, two updates for each 8 env steps (one for 4, as in the paper). PPO: 8 x 128 steps, 4
epochs x 4 minibatches of 256.
"""

from __future__ import annotations

import argparse

ENVS = 8
FRAMES_A_STEP = 4
STEPS = {"dqn": 25_000, "ppo": 25_600}  # 100,000 frames, PPO's in whole rollouts
GAMMA = 0.99

# DQN
WARMUP = 1000
DQN_BATCH = 32
UPDATES_A_CALL = 2  # for each step of all envs
DQN_LR = 1e-4
REPLAY = 100_000
TARGET_EVERY = 1000  # env steps
EPS_END = 0.01
MAX_GRAD_NORM = {"dqn": 10.0, "ppo": 0.5}

# PPO
LANE_STEPS = 128
EPOCHS = 4
PPO_BATCH = 256
PPO_LR = 2.5e-4
CLIP = 0.1
ENTROPY = 0.01
LAMBDA = 0.95
ROLLOUT = ENVS * LANE_STEPS


def parse(*, profile: bool = False, vec: bool = False) -> argparse.Namespace:
    """Read the command line of a contender; `steps` is set, in whole rollouts for PPO."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--algorithm", choices=STEPS, required=True)
    parser.add_argument("--steps", type=int, help="env steps")
    if profile:
        parser.add_argument("--profile", action="store_true", help="print where the time goes")
    if vec:
        parser.add_argument("--vec", choices=["dummy", "subproc"], default="dummy")
    args = parser.parse_args()
    args.steps = STEPS[args.algorithm] if args.steps is None else args.steps
    if args.algorithm == "ppo":
        args.steps = max(1, args.steps // ROLLOUT) * ROLLOUT
    return args


def updates_of(algorithm: str, steps: int) -> int:
    """Return how many updates so many env steps take."""
    if algorithm == "ppo":
        return steps // ROLLOUT * EPOCHS * (ROLLOUT // PPO_BATCH)
    return (steps - WARMUP) // ENVS * UPDATES_A_CALL
