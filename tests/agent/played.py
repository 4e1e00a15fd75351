"""Play episodes by a run's own evaluator, and hold what its env observed and was given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ding_like.data.rows import adapt_eval_mode
from ding_like.envs import get_vec_env_setting
from ding_like.envs.wrappers import wrapper_states
from ding_like.pipeline.envs import build_policy, build_single_env
from ding_like.pipeline.statistics import load_agent
from ding_like.utils.seeding import make_rng
from ding_like.worker.evaluator.interaction import play_episodes
from tests.serve.runs import Run
from tests.serve.toy_envs import ToyEnv

Played = list[tuple[Any, Any]]
EPISODE = 5  # steps of a toy env


def evaluate(run: Run, checkpoint: Path, *, num_episodes: int = 3) -> Played:
    """Return (observation, action) of each step of an evaluation, in one env, as the env itself has them."""
    env_fn, _, env_cfgs = get_vec_env_setting(run.cfg.env, collect=False)
    manager = build_single_env(lambda: env_fn(env_cfgs[0]))
    try:
        policy = build_policy(run.fitted, seed=99, modes=["eval"])
        statistics = load_agent(policy.eval_mode, checkpoint)
        manager.seed(3)
        manager.launch()
        if any(statistics):
            manager.adopt_wrapper_states(statistics)
        ToyEnv.played.clear()
        play_episodes(manager, adapt_eval_mode(policy.eval_mode), num_episodes, rng=make_rng(0, "eval"))
        return list(ToyEnv.played)[: num_episodes * EPISODE]
    finally:
        manager.close()


def statistics_of(run: Run, *, seed: int = 0) -> dict[str, Any]:
    """Return what a checkpoint holds of wrappers that learned from random steps in two envs."""
    lanes = []
    for lane in range(2):
        env_fn, _, env_cfgs = get_vec_env_setting(run.cfg.env, collect=False)
        env = env_fn(env_cfgs[0])
        env.reset(seed=seed + lane)
        env.action_space.seed(lane)
        for _ in range(EPISODE - 1):
            env.step(env.action_space.sample())
        lanes.append(wrapper_states(env))
        env.close()
    return {"env_wrappers": {"lanes": lanes}}


def same_action(one: Any, other: Any) -> bool:
    """Tell whether two actions of an env are equal, of whatever form."""
    if isinstance(one, (tuple, list)) or isinstance(other, (tuple, list)):
        return len(one) == len(other) and all(same_action(a, b) for a, b in zip(one, other, strict=True))
    return bool(np.array_equal(np.asarray(one), np.asarray(other)))


def stacked(each: list[Any]) -> Any:
    """Return a batch of observations."""
    if isinstance(each[0], dict):
        return {key: stacked([one[key] for one in each]) for key in each[0]}
    return np.stack([np.asarray(one) for one in each])
