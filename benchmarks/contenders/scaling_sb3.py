"""Stable-Baselines3's DQN on a `SubprocVecEnv` of envs that sleep."""

from __future__ import annotations

from benchmarks.common import emit_versions  # isort: skip  (pins the threads first)

import gymnasium
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import SubprocVecEnv

from benchmarks.contenders import scaling_work as work


class Clock(BaseCallback):
    """Note the env steps after each step of the envs."""

    def __init__(self) -> None:
        super().__init__()
        self.rate = work.Rate()

    def _on_step(self) -> bool:
        self.rate.note(self.num_timesteps, has_begun=self.num_timesteps > work.WARMUP)
        return True


def main() -> None:
    """Train once and print the rate."""
    args = work.parse()
    torch.set_num_threads(1)
    env = SubprocVecEnv([lambda: gymnasium.make(args.env)] * args.workers)
    model = DQN(
        "MlpPolicy",
        env,
        learning_starts=work.WARMUP,
        batch_size=work.BATCH,
        train_freq=(max(work.STEPS_PER_UPDATE // args.workers, 1), "step"),
        gradient_steps=1,
        policy_kwargs=dict(net_arch=work.HIDDEN),
        device="cpu",
        seed=0,
    )
    clock = Clock()
    model.learn(args.steps, callback=clock)
    clock.rate.report()
    env.close()
    emit_versions("stable_baselines3", "torch", "gymnasium")


if __name__ == "__main__":
    main()
