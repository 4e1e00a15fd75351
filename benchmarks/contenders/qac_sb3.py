"""Stable-Baselines3's SAC and TD3 end to end on Pendulum, the same work."""

from __future__ import annotations

import argparse

from benchmarks.common import Clock, emit, emit_versions  # isort: skip  (pins the threads first)

import gymnasium
import numpy as np
import torch
from stable_baselines3 import SAC, TD3
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv

from benchmarks.contenders import qac_work as work


def main() -> None:
    """Train once and print the rates."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--policy", choices=["sac", "td3"], required=True)
    parser.add_argument("--steps", type=int, default=work.STEPS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    cls = {"sac": SAC, "td3": TD3}[args.policy]
    noise = {} if cls is SAC else dict(action_noise=NormalActionNoise(np.zeros(1), 0.1 * np.ones(1)))
    model = cls(
        "MlpPolicy",
        DummyVecEnv([lambda: gymnasium.make(work.ENV)] * work.NUM_ENVS),
        learning_rate=work.LEARNING_RATE,
        buffer_size=100_000,
        learning_starts=work.RANDOM_STEPS,
        batch_size=work.BATCH_SIZE,
        gamma=work.GAMMA,
        tau=work.TAU,
        train_freq=1,
        gradient_steps=work.NUM_ENVS,
        policy_kwargs=dict(net_arch=[work.HIDDEN, work.HIDDEN]),
        device="cpu",
        seed=0,
        **noise,
    )
    clock = Clock()
    clock.start()
    model.learn(args.steps, log_interval=None)
    clock.stop()
    clock.report(model.num_timesteps, updates=model._n_updates)
    mean, _ = evaluate_policy(model, Monitor(gymnasium.make(work.ENV)), work.EPISODES)
    emit("return", round(float(mean), 1), "")
    emit_versions("stable_baselines3", "torch", "numpy", "gymnasium")


if __name__ == "__main__":
    main()
