"""Stable-Baselines3's DQN end to end, the same work."""

from __future__ import annotations

import argparse

from benchmarks.common import Clock, emit_rates  # isort: skip  (pins the threads first)

import gymnasium as gym
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.vec_env import DummyVecEnv


def main() -> None:
    """Print the rates."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = DQN(
        "MlpPolicy",
        DummyVecEnv([lambda: gym.make("CartPole-v1")] * 8),
        learning_rate=1e-3,
        buffer_size=100000,
        learning_starts=1000,
        batch_size=64,
        train_freq=1,
        gradient_steps=1,
        target_update_interval=4000,
        exploration_fraction=0.5,
        exploration_final_eps=0.1,
        policy_kwargs=dict(net_arch=[128, 128, 64]),
        device="cpu",
        seed=0,
    )
    clock = Clock()
    model.learn(args.steps, log_interval=None)
    clock.stop()
    emit_rates("sb3", clock, model.num_timesteps, model._n_updates)


if __name__ == "__main__":
    main()
