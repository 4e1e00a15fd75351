"""Stable-Baselines3's DQN and PPO on Pong, with its own Atari wrapper and vector env."""

from __future__ import annotations

from benchmarks.common import Clock, emit, emit_versions  # isort: skip  (pins the threads first)

import ale_py
import gymnasium
import torch
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack

from benchmarks.contenders import atari_work as work


def build(algorithm: str, env: VecFrameStack, *, steps: int) -> DQN | PPO:
    """Return the algorithm with the settings of the common work."""
    common = dict(gamma=work.GAMMA, max_grad_norm=work.MAX_GRAD_NORM[algorithm], device="cpu", seed=0)
    if algorithm == "dqn":
        return DQN(
            "CnnPolicy",
            env,
            learning_rate=work.DQN_LR,
            buffer_size=work.REPLAY,
            learning_starts=work.WARMUP,
            batch_size=work.DQN_BATCH,
            train_freq=1,
            gradient_steps=work.UPDATES_A_CALL,
            target_update_interval=work.TARGET_EVERY,
            exploration_fraction=0.5,
            exploration_final_eps=work.EPS_END,
            **common,
        )
    return PPO(
        "CnnPolicy",
        env,
        learning_rate=work.PPO_LR,
        n_steps=work.LANE_STEPS,
        batch_size=work.PPO_BATCH,
        n_epochs=work.EPOCHS,
        clip_range=work.CLIP,
        ent_coef=work.ENTROPY,
        gae_lambda=work.LAMBDA,
        **common,
    )


def main() -> None:
    """Train once and print the rates."""
    args = work.parse(vec=True)
    torch.set_num_threads(1)
    gymnasium.register_envs(ale_py)
    kind = dict(dummy=DummyVecEnv, subproc=SubprocVecEnv)[args.vec]
    env = VecFrameStack(make_atari_env("PongNoFrameskip-v4", n_envs=work.ENVS, seed=0, vec_env_cls=kind), n_stack=4)
    model = build(args.algorithm, env, steps=args.steps)
    clock = Clock()
    clock.start()
    model.learn(args.steps, log_interval=10**9)
    clock.stop()
    env.close()
    emit("frames_wall", round(model.num_timesteps * work.FRAMES_A_STEP / clock.wall_s, 1), "frames/s")
    clock.report(model.num_timesteps, updates=updates_of(model))
    emit_versions("stable_baselines3", "ale-py", "torch", "numpy", "gymnasium")


def updates_of(model: DQN | PPO) -> int:
    """Return how many gradient steps were taken; PPO counts epochs."""
    return model._n_updates if isinstance(model, DQN) else model._n_updates * (work.ROLLOUT // work.PPO_BATCH)


if __name__ == "__main__":
    main()
