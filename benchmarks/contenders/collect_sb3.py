"""Stable-Baselines3's `collect_rollouts`: act with the MLP, step 8 CartPole in process, store every transition."""

from __future__ import annotations

import argparse

from benchmarks.common import Clock, emit_rates  # isort: skip  (pins the threads first)

import gymnasium as gym
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.type_aliases import TrainFreq, TrainFrequencyUnit
from stable_baselines3.common.vec_env import DummyVecEnv


class Silent(BaseCallback):
    """Do nothing at every step."""

    def _on_step(self) -> bool:
        return True


def main() -> None:
    """Print the rates."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    env = DummyVecEnv([lambda: gym.make("CartPole-v1")] * 8)
    model = DQN(
        "MlpPolicy",
        env,
        learning_starts=0,
        train_freq=32,
        gradient_steps=0,
        buffer_size=100000,
        exploration_fraction=1e-9,
        exploration_final_eps=0.0,
        device="cpu",
        policy_kwargs=dict(net_arch=[128, 128, 64]),
    )
    model._setup_learn(10**9)
    model.exploration_rate = 0.0
    model.exploration_schedule = lambda progress: 0.0
    callback, every = Silent(), TrainFreq(32, TrainFrequencyUnit.STEP)
    callback.init_callback(model)

    def collect() -> None:
        model.collect_rollouts(env, callback, every, model.replay_buffer, None, model.learning_starts, None)

    for _ in range(4):
        collect()
    calls = args.steps // 256
    clock = Clock()
    for _ in range(calls):
        collect()
    clock.stop()
    emit_rates("sb3", clock, calls * 256)


if __name__ == "__main__":
    main()
