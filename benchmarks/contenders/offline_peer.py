"""Offline policies of d3rlpy with its defaults, but for batches of one size, on the work of both."""

from __future__ import annotations

import logging

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
    "discrete_bc": d3rlpy.algos.DiscreteBCConfig,
    "discrete_cql": d3rlpy.algos.DiscreteCQLConfig,
    "discrete_bcq": d3rlpy.algos.DiscreteBCQConfig,
}


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
    given = {}
    if args.method == "rebrac":  # the networks of the paper, and of ours
        make = d3rlpy.models.VectorEncoderFactory
        given = {
            "actor_encoder_factory": make([256, 256, 256]),
            "critic_encoder_factory": make([256, 256, 256], use_layer_norm=True),
        }
    name = f"discrete_{args.method}" if data.is_discrete and args.method == "bc" else args.method
    algo = CONFIGS[name](batch_size=work.BATCH_SIZE, **given).create(device=False)
    algo.build_with_dataset(steps)
    clock = Clock()
    clock.start()
    algo.fit(
        steps, n_steps=args.updates, n_steps_per_epoch=args.updates, show_progress=False, save_interval=10**9,
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
    )  # fmt: skip
    clock.stop()
    data.report(algo.predict, args, cpu_s=clock.cpu_s)
    emit_versions("d3rlpy", "torch", "numpy", "gymnasium", "mujoco")


if __name__ == "__main__":
    main()
