"""Our PPO end to end: `serial_pipeline_onpolicy` with hooks and logs at their defaults."""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.common import Clock, emit_versions  # isort: skip  (pins the threads first)

import tensorboardX  # noqa: F401  (30 ms once a process, at the first log; SB3 imports its writer with itself)

from benchmarks.contenders.dqn_ours import ClockHook
from ding_like.entry import serial_pipeline_onpolicy
from ding_like.worker import register_learner_hook

ENVS, LANE_STEPS, EPOCHS, MINIBATCHES = 8, 128, 4, 4
ROLLOUT = ENVS * LANE_STEPS


def configs(*, backend: str = "auto") -> tuple[Any, Any]:
    """Return (main_config, create_config) of the work that the README describes."""
    main = dict(
        exp_name="bench",
        env=dict(env_id="CartPole-v1", collector_env_num=ENVS, evaluator_env_num=8, n_evaluator_episode=8),
        policy=dict(
            discount_factor=0.99,
            model=dict(
                share_encoder=False,
                encoder_hidden_size_list=[64, 64],
                actor_head_layer_num=0,
                critic_head_layer_num=0,
                activation="tanh",
            ),
            learn=dict(
                epoch_per_collect=EPOCHS,
                batch_size=ROLLOUT // MINIBATCHES,
                learning_rate=3e-4,
                clip_ratio=0.2,
                value_weight=0.5,
                entropy_weight=0.01,
                grad_clip_value=0.5,
                adam_eps=1e-5,
                adv_norm=True,
                backend=backend,
            ),
            collect=dict(n_sample=ROLLOUT, gae_lambda=0.95),
        ),
    )
    create = dict(
        env=dict(type="gymnasium"),
        env_manager=dict(type="base"),
        policy=dict(type="ppo"),
        evaluator=dict(type="never"),
    )
    return main, create


def main() -> None:
    """Train once and print the rates, or a profile."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20_480)
    parser.add_argument("--backend", default="auto", choices=["auto", "autograd"])
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    args = parser.parse_args()
    rollouts = max(1, args.steps // ROLLOUT)
    ClockHook.clock = Clock(profile=args.profile)
    ClockHook.updates = rollouts * EPOCHS * MINIBATCHES
    register_learner_hook("clock", ClockHook)
    main_config, create_config = configs(backend=args.backend)
    hooks = {f"clock_{position}": True for position in ("before_run", "after_iter")}
    main_config["policy"]["learn"]["learner"] = dict(hook=hooks)
    serial_pipeline_onpolicy((main_config, create_config), seed=0, max_env_step=rollouts * ROLLOUT)
    ClockHook.clock.report(ClockHook.env_steps, updates=ClockHook.updates)
    emit_versions("torch", "numpy", "gymnasium")


if __name__ == "__main__":
    main()
