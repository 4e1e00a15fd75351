"""BC, GAIL, AIRL and SQIL of the package `imitation`, as its documentation sets them up, on the work of both."""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

from benchmarks.common import Clock, emit, emit_versions  # isort: skip  (pins the threads first)

import gymnasium
import numpy as np
import torch
from imitation.algorithms import bc, sqil
from imitation.algorithms.adversarial import airl, gail
from imitation.data import types
from imitation.rewards.reward_nets import BasicRewardNet, BasicShapedRewardNet
from imitation.util import logger
from imitation.util.networks import RunningNorm
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from benchmarks.contenders import imitate_work as work


def trajectories(episodes: list[dict[str, Any]]) -> list[types.Trajectory]:
    """Return the expert's episodes as the library takes them."""
    return [types.Trajectory(each["obs"], each["action"], None, terminal=True) for each in episodes]


def adversarial(method: str, demonstrations: Any, seed: int, log: Any) -> Any:
    """Train GAIL or AIRL and return the policy."""
    envs = DummyVecEnv([lambda: Monitor(gymnasium.make(work.ENV))] * work.NUM_ENVS)
    learner = PPO(
        "MlpPolicy", envs, batch_size=64, ent_coef=0.0, learning_rate=4e-4, gamma=0.95, n_epochs=5, n_steps=128,
        seed=seed, device="cpu",
    )  # fmt: skip
    trainer, net = (gail.GAIL, BasicRewardNet) if method == "gail" else (airl.AIRL, BasicShapedRewardNet)
    reward = net(envs.observation_space, envs.action_space, normalize_input_layer=RunningNorm)
    made = trainer(
        demonstrations=demonstrations, demo_batch_size=1024, gen_replay_buffer_capacity=512,
        n_disc_updates_per_round=8, venv=envs, gen_algo=learner, reward_net=reward, allow_variable_horizon=True,
        custom_logger=log,
    )  # fmt: skip
    made.train(work.STEPS[method])
    return learner


def train(method: str, seed: int, episodes: list[dict[str, Any]], folder: str) -> Any:
    """Return what a method has trained, which SB3 evaluates."""
    demonstrations, log = trajectories(episodes), logger.configure(folder, [])
    if method in ("gail", "airl"):
        return adversarial(method, demonstrations, seed, log)
    env = gymnasium.make(work.ENV)
    if method == "bc":
        trainer = bc.BC(
            observation_space=env.observation_space, action_space=env.action_space, demonstrations=demonstrations,
            rng=np.random.default_rng(seed), custom_logger=log, device="cpu",
        )  # fmt: skip
        trainer.train(n_epochs=work.EPOCHS, progress_bar=False)
        return trainer.policy
    envs = DummyVecEnv([lambda: Monitor(env)])
    made = sqil.SQIL(
        venv=envs, demonstrations=demonstrations, policy="MlpPolicy", custom_logger=log,
        rl_kwargs=dict(seed=seed, learning_starts=1000),
    )  # fmt: skip
    made.train(total_timesteps=work.STEPS[method])
    return made.policy


def main() -> None:
    """Train all seeds and print the mean return and the processor time of the training."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--method", choices=["bc", *work.STEPS], required=True)
    parser.add_argument("--seeds", type=int, default=work.SEEDS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    episodes, returns, cpu_s = work.expert_episodes(), [], 0.0
    for seed in range(args.seeds):
        torch.manual_seed(seed)
        clock = Clock()
        with tempfile.TemporaryDirectory() as folder:
            clock.start()
            trained = train(args.method, seed, episodes, folder)
            clock.stop()
        fresh = Monitor(gymnasium.make(work.ENV))
        fresh.reset(seed=10_000 + seed)
        returns.append(float(evaluate_policy(trained, fresh, work.EPISODES)[0]))
        cpu_s += clock.cpu_s
    emit("return", round(float(np.mean(returns)), 1), "")
    emit("lowest", round(min(returns), 1), "")
    emit("training", round(args.seeds / cpu_s, 4), "seeds/cpu-s")
    emit("expert_rows", work.fingerprint(episodes), "")
    emit_versions("imitation", "stable_baselines3", "torch", "numpy", "gymnasium")


if __name__ == "__main__":
    main()
