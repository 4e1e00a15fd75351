"""RLlib's DQN with env runners of one env that sleeps, by its public API."""

from __future__ import annotations

from benchmarks.common import emit_versions  # isort: skip  (pins the threads first)

import logging

import gymnasium
import ray
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune.registry import register_env

from benchmarks.contenders import scaling_work as work


def main() -> None:
    """Train once and print the rate."""
    args = work.parse()
    ray.init(num_cpus=args.workers + 1, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    register_env("asleep", lambda context: gymnasium.make(args.env))
    config = (
        DQNConfig()
        .environment("asleep")
        .env_runners(
            num_env_runners=args.workers,
            num_envs_per_env_runner=1,
            rollout_fragment_length=max(work.STEPS_PER_UPDATE // args.workers, 1),
        )
    )
    config.training(
        train_batch_size_per_learner=work.BATCH,
        training_intensity=work.BATCH / work.STEPS_PER_UPDATE,
        num_steps_sampled_before_learning_starts=work.WARMUP,
    )
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=work.STEPS_PER_UPDATE)
    config.rl_module(model_config=DefaultModelConfig(fcnet_hiddens=work.HIDDEN))
    algo, rate, env_steps = config.build_algo(), work.Rate(), 0
    while env_steps < args.steps:
        found = algo.train()
        env_steps = int(found["num_env_steps_sampled_lifetime"])
        rate.note(env_steps, has_begun=bool(found.get("learners")))
    rate.report()
    algo.stop()
    ray.shutdown()
    emit_versions("ray", "torch", "gymnasium")


if __name__ == "__main__":
    main()
