"""RLlib beside ours, by its public API: PPO's work, or PPO and IMPALA until CartPole is solved.

The settings of `solve` are after its tuned examples for CartPole, from memory: they were not compared with them.
Its driver is one process that calls `train()`, without Tune, dashboard and logs: less than what its examples start.
"""

from __future__ import annotations

import argparse
import logging
import os
import time
from typing import Any

from benchmarks.contenders import ray_work as work
from benchmarks.contenders.ray_work import BATCH, EPISODES, LANE_STEPS, LANES, SOLVED, mark

MODULE = "ray_rllib"
_WORTH_IT = 200.0  # mean return of episodes with exploration from which on a run evaluates


def ppo_work(workers: int) -> Any:
    """Return the config of the same PPO work as ours: 8 lanes of 128 steps, 4 epochs of 4 minibatches."""
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    config = PPOConfig().environment("CartPole-v1")
    config.env_runners(
        num_env_runners=workers,
        num_envs_per_env_runner=LANES // max(workers, 1),
        rollout_fragment_length=LANE_STEPS,
    )
    config.training(
        train_batch_size_per_learner=BATCH,
        minibatch_size=BATCH // work.MINIBATCHES,
        num_epochs=work.EPOCHS,
        lr=3e-4,
        gamma=0.99,
        lambda_=0.95,
        clip_param=0.2,
        entropy_coeff=0.01,
        vf_loss_coeff=0.5,
        grad_clip=0.5,
        grad_clip_by="global_norm",
        use_kl_loss=False,
    )
    model = DefaultModelConfig(fcnet_hiddens=[64, 64], fcnet_activation="tanh", vf_share_layers=False)
    return config.rl_module(model_config=model)


def ppo_tuned(workers: int) -> Any:
    """Return a config for PPO on CartPole, after the tuned example."""
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    config = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=workers)
    config.training(lr=3e-4, num_epochs=6, vf_loss_coeff=0.01)
    model = DefaultModelConfig(fcnet_hiddens=[32], fcnet_activation="linear", vf_share_layers=True)
    return config.rl_module(model_config=model)


def impala_tuned(workers: int) -> Any:
    """Return a config for IMPALA on CartPole, after the tuned example."""
    from ray.rllib.algorithms.impala import IMPALAConfig
    from ray.rllib.connectors.env_to_module import MeanStdFilter
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    config = IMPALAConfig().environment("CartPole-v1")
    config.env_runners(
        num_env_runners=workers,
        env_to_module_connector=lambda env=None, spaces=None, device=None: MeanStdFilter(),
    )
    config.training(
        train_batch_size_per_learner=500,
        grad_clip=40.0,
        grad_clip_by="global_norm",
        lr=5e-4,
        vf_loss_coeff=0.05,
        entropy_coeff=0.0,
    )
    config.reporting(min_time_s_per_iteration=2)  # instead of 10, so that being solved is seen soon
    return config.rl_module(model_config=DefaultModelConfig(vf_share_layers=True))


TUNED = {"ppo": ppo_tuned, "impala": impala_tuned}


def run_work(config: Any, steps: int) -> None:
    """Train for so many env steps; the first batch comes before the clock."""
    algo = config.build_algo()
    found = algo.train()
    mark("started", **_facts(found))
    while found["num_env_steps_sampled_lifetime"] < steps:
        found = algo.train()
    mark("trained", **_facts(found))
    algo.stop()


def _facts(found: Any) -> dict[str, int]:
    """Return env steps and updates (minibatches of the work) of a run until now."""
    rows = found["learners"]["default_policy"]["num_module_steps_trained_lifetime"]
    updates = round(rows / (BATCH // work.MINIBATCHES))
    return {"env_steps": int(found["num_env_steps_sampled_lifetime"]), "updates": updates}


def run_solve(config: Any, *, limit: int, limit_s: float) -> None:
    """Train until `EPISODES` episodes without exploration have a mean of `SOLVED`, or for `limit` env steps or seconds.

    It evaluates by its own means, in the driver in 10 lanes as ours does, and only when episodes of training are good
    for some `_WORTH_IT`: evaluations cost it little.
    """
    config.evaluation(
        evaluation_interval=10**9,  # by itself never: below it is called where it is worth its time
        evaluation_num_env_runners=0,
        evaluation_duration=EPISODES,
        evaluation_duration_unit="episodes",
        evaluation_config={"explore": False, "num_envs_per_env_runner": 10},
    )
    started_s = time.perf_counter()
    algo = config.build_algo()
    value, steps = 0.0, 0
    while value < SOLVED and steps < limit and time.perf_counter() - started_s < limit_s:
        found = algo.train()
        steps = int(found["num_env_steps_sampled_lifetime"])
        value = float(found["env_runners"].get("episode_return_mean", 0.0))
        if value >= _WORTH_IT:
            value = float(algo.evaluate()["env_runners"]["episode_return_mean"])
    mark("done", solved=value >= SOLVED, env_steps=steps, mean_return=value)
    algo.stop()


def run_inside(args: argparse.Namespace) -> None:
    """Do the work in a cluster of one's own."""
    work.be_measured()
    os.environ["RAY_worker_niceness"] = "0"  # as ours: workers as they are, not put behind others
    import ray

    # Logical processors: with two its runners would have all, and its learner would wait for one for ever.
    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    if args.solve is None:
        run_work(ppo_work(args.workers).debugging(log_level="ERROR"), args.steps)
    else:
        config = TUNED[args.solve](args.workers).debugging(seed=args.seed, log_level="ERROR")
        run_solve(config, limit=args.steps, limit_s=args.limit_s)
    ray.shutdown()


if __name__ == "__main__":
    work.run(MODULE, __doc__, run_inside, solve=TUNED)
