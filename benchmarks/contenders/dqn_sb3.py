"""Stable-Baselines3's DQN end to end, the same work."""

from __future__ import annotations

import argparse

from benchmarks.common import Clock, emit_versions  # isort: skip  (pins the threads first)

import gymnasium
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.vec_env import DummyVecEnv


def main() -> None:
    """Train once and print the rates."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20_000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = DQN(
        "MlpPolicy",
        DummyVecEnv([lambda: gymnasium.make("CartPole-v1")] * 8),
        learning_rate=1e-3,
        buffer_size=100_000,
        learning_starts=1000,
        batch_size=64,
        gamma=0.99,
        train_freq=1,
        gradient_steps=1,
        target_update_interval=4000,  # env steps: 500 updates
        exploration_fraction=0.5,
        exploration_final_eps=0.1,
        policy_kwargs=dict(net_arch=[128, 128, 64]),
        device="cpu",
        seed=0,
    )
    clock = Clock()
    clock.start()
    model.learn(args.steps, log_interval=None)
    clock.stop()
    clock.report(model.num_timesteps, updates=model._n_updates)
    emit_versions("stable_baselines3", "torch", "numpy", "gymnasium")


if __name__ == "__main__":
    main()
