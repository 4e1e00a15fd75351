"""Our offline policies with the networks and settings of d3rlpy's defaults, on the work of both."""

from __future__ import annotations

from typing import Any

from benchmarks.common import Clock, emit_versions  # isort: skip  (pins the threads first)

import numpy as np

import benchmarks.contenders.dqn_ours  # noqa: F401  (registers the evaluator 'never')
from benchmarks.contenders import offline_work as work
from benchmarks.contenders.imitate_ours import ClockHook
from ding_like.data.rows import adapt_eval_mode
from ding_like.entry import serial_pipeline_offline
from ding_like.types import SeesRewards
from ding_like.worker import register_learner_hook

NETWORK = dict(actor_head_hidden_size=256, critic_head_hidden_size=256)
_Q = dict(encoder_hidden_size_list=[256, 256], head_layer_num=0, dueling=False)
_RATES = dict(learning_rate_actor=3e-4, learning_rate_critic=3e-4)
POLICIES: dict[str, dict[str, Any]] = {
    "bc": dict(model=dict(encoder_hidden_size_list=[256, 256], head_layer_num=0), learn=dict(learning_rate=1e-3)),
    "td3_bc": dict(model=NETWORK, learn=_RATES),
    "iql": dict(model=NETWORK, learn={}),
    "rebrac": dict(model=NETWORK, learn=dict(actor_beta=0.001)),
    "cql": dict(
        model=NETWORK,
        learn=dict(learning_rate_q=3e-4, learning_rate_policy=1e-4, learning_rate_alpha=1e-4, min_q_weight=5.0),
    ),
    "bcq": dict(
        model=dict(
            **{f"{part}_head_hidden_size": [256, 256] for part in ("actor", "critic")},
            vae_hidden_dims=[256, 256],
            num_candidates=10,
        ),
        learn=dict(num_actions=10),
    ),
    "dt": dict(
        model=dict(h_dim=work.DT_WIDTH),
        learn=dict(learning_rate=work.DT_RATE, batch_size=work.DT_BATCH_SIZE, grad_clip_norm=work.DT_CLIP),
        rtg_scale=work.DT_RTG_SCALE,
        warmup_steps=work.DT_WARMUP,
    ),
    "discrete_cql": dict(model=_Q, learn={}),
    "discrete_bcq": dict(model=_Q, learn={}),
}


def main() -> None:
    """Train one seed and print its score and the processor time of the updates."""
    args = work.arguments()
    register_learner_hook("clock", ClockHook)
    data, own = work.Data(args.data), POLICIES[args.method]
    ClockHook.clock = Clock()
    hooks = {f"clock_{place}": True for place in ("before_run", "after_run")}
    learn = {"batch_size": work.BATCH_SIZE, **own["learn"], "learner": dict(hook=hooks)}
    main_config = dict(
        exp_name="bench",
        env=dict(env_id=data.env_id, evaluator_env_num=1, n_evaluator_episode=1, stop_value=1e9),
        policy={**own, "learn": learn, "collect": dict(data_path=str(data.path))},
    )
    create_config = dict(
        env=dict(type="gymnasium"),
        env_manager=dict(type="base"),
        policy=dict(type=args.method),
        evaluator=dict(type="never"),
    )
    policy = serial_pipeline_offline((main_config, create_config), seed=args.seed, max_iter=args.updates)
    actor, rng, lanes = adapt_eval_mode(policy.eval_mode).actor, np.random.default_rng(0), np.zeros(1, np.int64)

    def act(obs: Any, reward: float | None) -> Any:
        if reward is not None and isinstance(actor, SeesRewards):
            actor.observe(lanes, np.array([reward]))
        return actor.act(obs, lanes=lanes, is_first=np.array([reward is None]), rng=rng)["action"][0]

    data.report(act, args, cpu_s=ClockHook.clock.cpu_s)
    emit_versions("torch", "numpy", "gymnasium", "mujoco")


if __name__ == "__main__":
    main()
