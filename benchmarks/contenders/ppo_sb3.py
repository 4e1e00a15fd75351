"""Stable-Baselines3's PPO end to end: 8 CartPole x 128 steps, 4 epochs x 4 minibatches of 256, two towers 64-64."""

from __future__ import annotations

import argparse

from benchmarks.common import Clock, emit_versions  # isort: skip  (pins the threads first)

import gymnasium
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv


def main() -> None:
    """Train once and print the rates."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20_480)
    args = parser.parse_args()
    torch.set_num_threads(1)
    env = DummyVecEnv([lambda: gymnasium.make("CartPole-v1")] * 8)
    model = PPO("MlpPolicy", env, n_steps=128, batch_size=256, n_epochs=4, ent_coef=0.01, device="cpu", seed=0)
    clock = Clock()
    clock.start()
    model.learn(args.steps, log_interval=10**9)
    clock.stop()
    clock.report(model.num_timesteps, updates=model.num_timesteps // 1024 * 16)
    emit_versions("stable_baselines3", "torch", "numpy", "gymnasium")


if __name__ == "__main__":
    main()
