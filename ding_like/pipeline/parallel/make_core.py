"""Make a coordinator's core from a compiled config."""

from __future__ import annotations

import time
from typing import Any

from ding_like.pipeline.build import build_buffer
from ding_like.pipeline.parallel.core import CoordinatorCore, CoreConfig
from ding_like.pipeline.parallel.core.index import BufferIndex, OnPolicyIndex
from ding_like.pipeline.parallel.core.state import StateStore
from ding_like.pipeline.parallel.settings import SystemConfig, batch_rows, buffer_size
from ding_like.pipeline.sample_unit import steps_per_row, warmup_steps
from ding_like.pipeline.self_play import has_league, make_league
from ding_like.pipeline.update_ratio import OnPolicyRatio, UpdateRatio
from ding_like.worker import create_parallel_commander


def make_core(
    cfg: Any, system: SystemConfig, *, store: StateStore, seed: int, max_env_step: float
) -> tuple[CoordinatorCore, Any]:
    """Return (core, commander) of a compiled config, going on from what the store holds."""
    size = buffer_size(cfg)
    evaluator = cfg.policy.eval.evaluator
    commander_cfg = dict(cfg.policy.other.get("commander") or {})
    kwargs: dict[str, Any] = {}
    if has_league(cfg):
        commander_cfg.setdefault("type", "one_vs_one")
        # Snapshots are versions that were published already: there is nothing to copy.
        kwargs["league"] = make_league(cfg, seed=seed, save_checkpoint=lambda source, target: None)
    commander = create_parallel_commander(
        {
            **commander_cfg,
            "eval_freq": int(evaluator.eval_freq),
            "n_episode": int(evaluator.n_episode),
            "stop_value": float(cfg.env.stop_value),
            "max_env_step": max_env_step,
        },
        **kwargs,
    )

    def make_index(buffer_id: str) -> BufferIndex | OnPolicyIndex:
        if cfg.policy.on_policy:
            ratio = _on_policy_ratio(cfg.policy, system)
            return OnPolicyIndex(size, ratio.batch_rows, batch_segments=ratio.batch_segments)
        return BufferIndex(build_buffer(cfg, seed=seed, name=buffer_id), size)

    core = CoordinatorCore(
        CoreConfig(
            _ratio(cfg.policy, system),
            size,
            system.segment_rows,
            lease_ttl_s=float(system.coordinator["lease_ttl_s"]),
            heartbeat_s=float(system.coordinator["heartbeat_s"]),
            max_failures=int(system.coordinator["max_failures"]),
            publish_timeout_s=float(system.coordinator["publish_timeout_s"]),
            lanes=int(cfg.env.collector_env_num),
            steps_per_row=steps_per_row(cfg.policy),
            first_batch_rows=0 if cfg.policy.on_policy else batch_rows(cfg.policy),
            segment_episodes=system.segment_episodes,
        ),
        clock=time.monotonic,
        wall_clock=time.time,
        store=store,
        commander=commander,
        make_index=make_index,
    )
    return core, commander


def _ratio(policy: Any, system: SystemConfig) -> UpdateRatio | OnPolicyRatio:
    if policy.on_policy:
        return _on_policy_ratio(policy, system)
    collect = policy.collect
    return UpdateRatio(
        warmup_steps=warmup_steps(policy),
        steps=int(collect.n_episode) if system.segment_episodes else int(collect.n_sample) * steps_per_row(policy),
        updates=int(policy.learn.update_per_collect),
        max_lead=system.max_lead_rows,
    )


def _on_policy_ratio(policy: Any, system: SystemConfig) -> OnPolicyRatio:
    if not system.segment_episodes:
        return OnPolicyRatio(int(policy.collect.n_sample))
    return OnPolicyRatio(1, batch_segments=-(-int(policy.collect.n_episode) // system.segment_episodes))
