"""Offline policies of d3rlpy with its defaults, but for batches of one size, on the work of both."""

from __future__ import annotations

import logging
from typing import Any

from benchmarks.common import Clock, emit_versions  # isort: skip  (pins the threads first)

import d3rlpy
import structlog
import torch

from benchmarks.contenders import offline_work as work

CONFIGS = {
    "bc": d3rlpy.algos.BCConfig,
    "td3_bc": d3rlpy.algos.TD3PlusBCConfig,
    "iql": d3rlpy.algos.IQLConfig,
    "rebrac": d3rlpy.algos.ReBRACConfig,
    "cql": d3rlpy.algos.CQLConfig,
    "bcq": d3rlpy.algos.BCQConfig,
    "dt": d3rlpy.algos.DecisionTransformerConfig,
    "discrete_bc": d3rlpy.algos.DiscreteBCConfig,
    "discrete_cql": d3rlpy.algos.DiscreteCQLConfig,
    "discrete_bcq": d3rlpy.algos.DiscreteBCQConfig,
}


def _settings(method: str) -> dict[str, Any]:
    """Return those settings of our policy that are not d3rlpy's defaults, by d3rlpy's names."""
    make = d3rlpy.models.VectorEncoderFactory
    if method == "rebrac":  # the networks of the paper
        of_critic = make([256, 256, 256], use_layer_norm=True)
        return {"actor_encoder_factory": make([256, 256, 256]), "critic_encoder_factory": of_critic}
    if method == "bcq":
        return {"n_action_samples": 10}
    if method == "dt":
        slow_start = d3rlpy.optimizers.WarmupSchedulerFactory(work.DT_WARMUP)
        return {
            "batch_size": work.DT_BATCH_SIZE,
            "learning_rate": work.DT_RATE,
            "optim_factory": d3rlpy.optimizers.AdamWFactory(
                clip_grad_norm=work.DT_CLIP, lr_scheduler_factory=slow_start, weight_decay=1e-4
            ),
            "encoder_factory": make([work.DT_WIDTH], exclude_last_activation=True),
            "activation_type": "gelu",
            "observation_scaler": d3rlpy.preprocessing.StandardObservationScaler(),
            "reward_scaler": d3rlpy.preprocessing.MultiplyRewardScaler(1.0 / work.DT_RTG_SCALE),
        }
    return {}


def _in_context(algo: Any, target_return: float) -> work.Act:
    """Return a function that takes the actions of a sequence model, which is to reach a return in each episode."""
    agent = algo.as_stateful_wrapper(target_return=target_return)

    def act(obs: Any, reward: float | None) -> Any:
        if reward is None:
            agent.reset()
        return agent.predict(obs[0], reward or 0.0)

    return act


def main() -> None:
    """Train one seed and print its score and the processor time of the updates."""
    args = work.arguments()
    torch.set_num_threads(1)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    d3rlpy.seed(args.seed)
    data = work.Data(args.data)
    columns = data.columns
    steps = d3rlpy.dataset.MDPDataset(
        columns["obs"], columns["action"].reshape(len(columns["action"]), -1), columns["reward"],
        terminals=columns["terminated"].astype("float32"), timeouts=columns["truncated"].astype("float32"),
    )  # fmt: skip
    name = f"discrete_{args.method}" if data.is_discrete and args.method == "bc" else args.method
    algo = CONFIGS[name](**{"batch_size": work.BATCH_SIZE, **_settings(args.method)}).create(device=False)
    algo.build_with_dataset(steps)
    clock = Clock()
    clock.start()
    algo.fit(
        steps, n_steps=args.updates, n_steps_per_epoch=args.updates, show_progress=False, save_interval=10**9,
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
    )  # fmt: skip
    clock.stop()
    act = _in_context(algo, data.best_return) if args.method == "dt" else lambda obs, _: algo.predict(obs)[0]
    data.report(act, args, cpu_s=clock.cpu_s)
    emit_versions("d3rlpy", "torch", "numpy", "gymnasium", "mujoco")


if __name__ == "__main__":
    main()
