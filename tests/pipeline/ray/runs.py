"""Small runs, serial and by a scheme."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from ding_like.comm.workers.failures import FAILURES_FILE, FailureLog
from ding_like.entry import serial_pipeline, serial_pipeline_onpolicy
from ding_like.entry.training import load_config
from ding_like.pipeline.process import training_process
from ding_like.pipeline.ray.scheme import ray_runner
from ding_like.pipeline.record import Checkpointer, resume_store
from ding_like.pipeline.scheme_parts import build_driver
from ding_like.pipeline.settings import RaySettings
from ding_like.pipeline.training_loop import TrainingLoop
from ding_like.policy import Policy
from ding_like.report.run_console import Limits, RunConsole


def dqn(**changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a small DQN with priorities and n-step rows."""
    main = dict(
        exp_name="exp",
        env=dict(env_id="CartPole-v1", collector_env_num=4, evaluator_env_num=2, n_evaluator_episode=2, stop_value=1e9),
        policy=dict(
            priority=True,
            priority_IS_weight=True,
            nstep=3,
            random_collect_size=40,
            model=dict(encoder_hidden_size_list=[16, 16]),
            learn=dict(update_per_collect=4, batch_size=16),
            collect=dict(n_sample=8, collector=dict(collect_print_freq=1000)),
            eval=dict(evaluator=dict(eval_freq=500)),
        ),
    )
    main["policy"].update(changes)
    return main, dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="dqn"))


def ppo(**changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    main, create = dqn()
    main["policy"] = dict(
        model=dict(encoder_hidden_size_list=[16, 16]),
        learn=dict(epoch_per_collect=4, batch_size=16),
        collect=dict(n_sample=64),
        eval=dict(evaluator=dict(eval_freq=500)),
    )
    main["policy"].update(changes)
    return main, {**create, "policy": dict(type="ppo")}


def sac(**changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    main, create = dqn()
    main["env"]["env_id"] = "Pendulum-v1"
    main["policy"] = dict(
        random_collect_size=64,
        learn=dict(update_per_collect=8, batch_size=16),
        collect=dict(n_sample=8),
        eval=dict(evaluator=dict(eval_freq=500)),
    )
    main["policy"].update(changes)
    return main, {**create, "policy": dict(type="sac")}


def serial(configs: Any, **arguments: Any) -> Policy:
    """Train in one process."""
    is_on_policy = configs[1]["policy"]["type"] in ("ppo", "a2c", "impala")
    return (serial_pipeline_onpolicy if is_on_policy else serial_pipeline)(configs, **arguments)


def settings(
    workers: int = 0, comm: str = "sync", grad_workers: int = 1, grad_comm: str = "sync", *,
    decentralized: bool = False, **collect: Any,
) -> RaySettings:  # fmt: skip
    """Return settings of workers that need no resources to speak of."""
    found = RaySettings()
    return replace(
        found,
        collect=replace(found.collect, workers=workers, comm=comm, **collect),
        grad=replace(found.grad, workers=grad_workers, comm=grad_comm),
        update=replace(found.update, decentralized=decentralized),
    )


def scheme(
    configs: Any, chosen: RaySettings, *, seed: int = 0, max_train_iter: float = 1e10, max_env_step: float = 1e10,
    exp_name: str = "scheme", resumes: bool = False, wrap: Any = lambda turns: turns,
) -> Policy:  # fmt: skip
    """Train by a scheme whose workers run on Ray: the tests' cluster where there is one."""
    if resumes:
        cfg = load_config(Path(exp_name, "total_config.py"), seed=seed, exp_name=exp_name, save=False, renew_dir=False)
    else:
        cfg = load_config(configs, seed=seed, exp_name=exp_name)
    with training_process():
        parts = build_driver(cfg, seed=seed, collects=chosen.collects_here)
        log = FailureLog(Path(cfg.exp_name) / FAILURES_FILE)
        with closing(parts):
            TrainingLoop(
                cfg,
                parts,
                limits=Limits(max_env_step, max_train_iter),
                console=RunConsole("", Limits(), is_shown=False),
                checkpointer=Checkpointer(cfg, parts, arguments={}),
                saved=resume_store(cfg.exp_name).load_newest() if resumes else None,
                make_runner=wrap(ray_runner(cfg, parts, chosen, seed=seed, log=log)),
            ).run()
    return parts.policy


def result(exp_name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(exp_name, "result.json").read_text())
    return found
