"""Stable-Baselines3's `collect_rollouts`: act with the MLP, step 8 CartPole, store every transition."""

from __future__ import annotations

import argparse

from benchmarks.common import Clock, emit_versions  # isort: skip  (pins the threads first)

import gymnasium
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.type_aliases import TrainFreq, TrainFrequencyUnit
from stable_baselines3.common.vec_env import DummyVecEnv

_CALL_STEPS = 256


class Silent(BaseCallback):
    """Callback without effect."""

    def _on_step(self) -> bool:
        return True


def main() -> None:
    """Collect in calls of 256 samples and print the rates."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100_000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    env = DummyVecEnv([lambda: gymnasium.make("CartPole-v1")] * 8)
    model = DQN(
        "MlpPolicy",
        env,
        learning_starts=0,
        buffer_size=100_000,
        exploration_fraction=1e-9,
        exploration_final_eps=0.0,
        policy_kwargs=dict(net_arch=[128, 128, 64]),
        device="cpu",
        seed=0,
    )
    model._setup_learn(10**9)
    model.exploration_rate = 0.0
    model.exploration_schedule = lambda progress: 0.0
    callback, every = Silent(), TrainFreq(_CALL_STEPS // 8, TrainFrequencyUnit.STEP)
    callback.init_callback(model)

    def collect_until(env_step: int) -> None:
        while model.num_timesteps < env_step:
            model.collect_rollouts(env, callback, every, model.replay_buffer, None, model.learning_starts, None)

    collect_until(1000)
    warm = model.num_timesteps
    clock = Clock()
    clock.start()
    collect_until(warm + args.steps)
    clock.stop()
    clock.report(model.num_timesteps - warm)
    emit_versions("stable_baselines3", "torch", "numpy", "gymnasium")


if __name__ == "__main__":
    main()
