"""A bare loop over a gymnasium vector env of 8 CartPole with the MLP in torch, storing nothing."""

from __future__ import annotations

import argparse
from itertools import pairwise

from benchmarks.common import Clock, emit_versions  # isort: skip  (pins the threads first)

import gymnasium
import torch
from torch import nn


def main() -> None:
    """Step and print the rates."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--vector", default="sync", choices=["sync", "vector_entry_point"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    envs = gymnasium.make_vec("CartPole-v1", num_envs=8, vectorization_mode=args.vector)
    hidden = [layer for sizes in pairwise((4, 128, 128, 64)) for layer in (nn.Linear(*sizes), nn.ReLU())]
    network = nn.Sequential(*hidden, nn.Linear(64, 2))
    obs, _ = envs.reset(seed=0)

    def step_times(calls: int) -> None:
        nonlocal obs
        for _ in range(calls):
            with torch.inference_mode():
                actions = network(torch.from_numpy(obs)).argmax(1).numpy()
            obs, *_ = envs.step(actions)

    step_times(125)
    calls = args.steps // 8
    clock = Clock()
    clock.start()
    step_times(calls)
    clock.stop()
    clock.report(calls * 8)
    emit_versions("torch", "numpy", "gymnasium")


if __name__ == "__main__":
    main()
