"""Small runs with central inference, whose servers and actors are threads of this process."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from ding_like.comm.workers.failures import FailureLog
from ding_like.comm.workers.processes import ChildThread
from ding_like.entry.training import load_config
from ding_like.pipeline.envs import EnvSetting
from ding_like.pipeline.process import training_process
from ding_like.pipeline.record import Checkpointer, resume_store
from ding_like.pipeline.scheme_parts import build_driver
from ding_like.pipeline.seed.runner import seed_runner
from ding_like.pipeline.settings import SeedSettings
from ding_like.pipeline.training_loop import TrainingLoop
from ding_like.policy import Policy
from ding_like.report.run_console import Limits, RunConsole
from tests.pipeline.ray import runs


def rainbow(**changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a small Rainbow: noise in every action."""
    main, create = runs.dqn()
    main["policy"] = {
        **main["policy"],
        "model": dict(encoder_hidden_size_list=[16], head_hidden_size=16, v_min=0, v_max=10, n_atom=11),
        "other": dict(eps=dict(type="linear", start=0.2, end=0.1, decay=100)),
        **changes,
    }
    return main, {**create, "policy": dict(type="rainbow")}


def r2d2(**changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a small R2D2, whose rows are sequences with the state that the network was given."""
    main, create = runs.dqn()
    main["policy"] = {
        **main["policy"],
        "priority": False,
        "priority_IS_weight": False,
        "random_collect_size": 0,
        "burnin_step": 2,
        "learn_unroll_len": 4,
        "model": dict(encoder_hidden_size_list=[16], lstm_hidden_size=16),
        **changes,
    }
    return main, {**create, "policy": dict(type="r2d2")}


def one(**settings: Any) -> SeedSettings:
    """Return settings of one actor thread and one server, which take turns as a serial run does."""
    return SeedSettings(**{"actor_processes": 1, "comm": "sync", **settings})


def seed(
    configs: Any, chosen: SeedSettings, *, seed: int = 0, max_train_iter: float = 1e10, max_env_step: float = 1e10,
    max_duration_s: float = float("inf"), exp_name: str = "seed", resumes: bool = False,
    env_setting: EnvSetting | None = None, wrap: Any = lambda turns: turns,
) -> Policy:  # fmt: skip
    """Train with central inference in threads of this process."""
    if resumes:
        cfg = load_config(Path(exp_name, "total_config.py"), seed=seed, exp_name=exp_name, save=False, renew_dir=False)
    else:
        cfg = load_config(configs, seed=seed, exp_name=exp_name)
    with training_process():
        parts = build_driver(cfg, seed=seed, env_setting=env_setting)
        with closing(parts):
            turns = seed_runner(
                cfg, parts, chosen, seed=seed, log=FailureLog(), env_setting=env_setting, run_as=ChildThread
            )
            TrainingLoop(
                cfg,
                parts,
                limits=Limits(max_env_step, max_train_iter, max_duration_s=max_duration_s),
                console=RunConsole("", Limits(), is_shown=False),
                checkpointer=Checkpointer(cfg, parts, arguments={}),
                saved=resume_store(cfg.exp_name).load_newest() if resumes else None,
                make_runner=wrap(turns),
            ).run()
    return parts.policy
