"""Runs of every kind of observation, action and wrapper, and episodes that a run's own evaluator plays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ding_like.agent.description import write_description
from ding_like.data.rows import adapt_eval_mode
from ding_like.envs import get_vec_env_setting
from ding_like.envs.wrappers import wrapper_states
from ding_like.pipeline.envs import build_policy, build_single_env
from ding_like.pipeline.statistics import load_agent
from ding_like.utils.seeding import make_rng
from ding_like.worker.evaluator import play_episodes
from tests.contracts.policy_cases import ACTING
from tests.serve.runs import Run
from tests.serve.toy_envs import ToyEnv

SMALL = dict(model=dict(encoder_hidden_size_list=[8, 8]))
QAC = dict(model=dict(actor_head_hidden_size=8, critic_head_hidden_size=8))
STATISTICS = {"mean": np.array([1.0, -2.0, 3.0]), "var": np.array([4.0, 0.25, 9.0]), "count": 100.0, "is_frozen": False}
OTHER_STATISTICS = {
    "mean": np.array([0.0, 1.0, 5.0]),
    "var": np.array([1.0, 1.0, 2.0]),
    "count": 50.0,
    "is_frozen": False,
}
OBS_NORM = {
    "env_wrappers": {"lanes": [[{"type": "ObsNorm", "state": each}] for each in (STATISTICS, OTHER_STATISTICS)]}
}
REWARD = {
    "type": "RewardNorm",
    "state": {"mean": np.array(0.0), "var": np.array(1.0), "count": 9.0, "is_frozen": False},
}
STACK = dict(type="frame_stack", stack_size=3)
MEMORY = dict(model=dict(encoder_hidden_size_list=[8], hidden_size=8))
ALL: dict[str, dict[str, Any]] = {
    "vectors": dict(policy="dqn", settings=SMALL),
    "actions from 3": dict(policy="dqn", settings=SMALL, action="from 3"),
    "wide numbers": dict(policy="dqn", settings=SMALL, obs="wide"),
    "numbers from 5": dict(policy="dqn", settings=SMALL, obs="number"),
    "several numbers": dict(policy="dqn", settings=SMALL, obs="numbers"),
    "bits": dict(policy="ppo", settings=SMALL, obs="bits", action="bits"),
    "several actions": dict(policy="ppo", settings=SMALL, action="several"),
    "dicts in dicts": dict(policy="dqn", settings=SMALL, obs="nested"),
    "box": dict(policy="sac", settings=QAC, action="box"),
    "box td3": dict(policy="td3", settings=QAC, action="box"),
    "statistics": dict(policy="dqn", settings=SMALL, wrappers=["obs_norm"], saved=OBS_NORM),
    "statistics of both": dict(
        policy="dqn",
        settings=SMALL,
        obs="wide",
        wrappers=["obs_norm", "reward_norm", dict(type="time_limit", max_episode_steps=4)],
        saved={"env_wrappers": {"lanes": [[REWARD, {"type": "ObsNorm", "state": STATISTICS}]]}},
    ),
    "flat": dict(policy="dqn", settings=SMALL, obs="nested", wrappers=[dict(type="FlattenObservation")]),
    "chosen and scaled": dict(
        policy="sac",
        settings=QAC,
        action="box",
        wrappers=[dict(type="obs_select", indices=[2, 0]), dict(type="rescale_action", min_action=-3, max_action=3)],
    ),
    "stacked frames": dict(policy="dqn", settings=SMALL, wrappers=[STACK, "FlattenObservation"]),
    "stacked and normalised": dict(
        policy="dqn", settings=SMALL, wrappers=["obs_norm", STACK, "FlattenObservation", "reward_norm"]
    ),
    "normalised stacks": dict(policy="dqn", settings=SMALL, wrappers=[STACK, "FlattenObservation", "obs_norm"]),
    "stacked box": dict(policy="ppo", settings=SMALL, action="box", wrappers=[STACK, "FlattenObservation"]),
    "recurrent": dict(policy="drqn", settings=dict(model=dict(encoder_hidden_size_list=[8]))),
    "recurrent ppo": dict(policy="ppo_recurrent", settings=MEMORY, action="box", wrappers=["obs_norm"]),
    "hybrid": dict(policy="pdqn", settings=SMALL, action="hybrid"),
    "hybrid stacked": dict(policy="pdqn", settings=SMALL, action="hybrid", wrappers=[STACK, "FlattenObservation"]),
    "ppo box": dict(policy="ppo", settings=SMALL, action="box"),
    "images": dict(policy="dqn", settings={}, obs="image"),
    "stacked dicts": dict(
        policy="dqn", settings=SMALL, obs="nested", wrappers=["FlattenObservation", STACK, "FlattenObservation"]
    ),
    "masked": dict(policy="dqn", settings=SMALL, mask=4),
    "team": dict(policy="qmix", settings=ACTING["qmix"].settings, obs="team", action="team"),
}

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
    """Return whether two actions of an env are equal, of whatever form."""
    if isinstance(one, (tuple, list)) or isinstance(other, (tuple, list)):
        return len(one) == len(other) and all(same_action(a, b) for a, b in zip(one, other, strict=True))
    return bool(np.array_equal(np.asarray(one), np.asarray(other)))


def stacked(each: list[Any]) -> Any:
    """Return a batch of observations."""
    if isinstance(each[0], dict):
        return {key: stacked([one[key] for one in each]) for key in each[0]}
    return np.stack([np.asarray(one) for one in each])


def saved_run(folder: Path, kind: str) -> tuple[Run, Path]:
    """Return a run of a kind with its description and a best checkpoint."""
    settings = dict(ALL[kind])
    saved = settings.pop("saved", None)
    run = Run(folder, **settings)
    has_statistics = saved is None and any("norm" in str(each) for each in settings.get("wrappers", ()))
    saved = statistics_of(run) if has_statistics else saved
    path = run.save(7, name="ckpt_best.pth.tar", **(saved or {}))
    write_description(run.cfg)
    return run, path
