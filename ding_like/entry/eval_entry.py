"""Evaluate a checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ding_like.data.records import EvalResult
from ding_like.data.rows import adapt_eval_mode
from ding_like.entry.serial_entry import InputConfig, load_config
from ding_like.envs import get_vec_env_setting
from ding_like.pipeline.build import EnvSetting, build_eval_env, build_policy, fit_policy_config, training_process
from ding_like.pipeline.report.video import filmable, make_video
from ding_like.pipeline.statistics import load_agent
from ding_like.utils.checkpoint import load_state
from ding_like.utils.log import shown_as_by_the_command
from ding_like.utils.seeding import make_rng
from ding_like.worker.evaluator import play_episodes

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)


@shown_as_by_the_command()
def eval(
    input_cfg: InputConfig,
    seed: int = 0,
    env_setting: EnvSetting | None = None,
    model: torch.nn.Module | None = None,
    state_dict: Mapping[str, Any] | None = None,
    load_path: str | None = None,
    replay_path: str | None = None,
    *,
    overrides: Sequence[str] = (),
) -> float:
    """Play `env.n_evaluator_episode` episodes and return the mean return.

    The weights are those of `state_dict`, else of the checkpoint at `load_path`, else of `model`, else fresh ones.
    Writes nothing but a video of one episode, `agent.gif` in the folder `replay_path`.
    """
    cfg = load_config(input_cfg, seed=seed, overrides=overrides, save=False, renew_dir=False)
    with training_process():
        if state_dict is None and load_path is not None:
            state_dict = load_state(load_path)
        setting = env_setting or get_vec_env_setting(cfg.env, collect=False)
        result = _play(cfg, seed, setting, model, state_dict, replay_path)
    logger.info("mean return %.4g over %d episodes", result.mean, len(result.returns))
    return result.mean


def _play(
    cfg: Any,
    seed: int,
    env_setting: EnvSetting,
    model: torch.nn.Module | None,
    state_dict: Mapping[str, Any] | None,
    replay_path: str | None,
) -> EvalResult:
    env_fn, _, evaluator_cfgs = env_setting
    manager = build_eval_env(cfg, seed=seed, env_setting=env_setting)
    try:
        policy = build_policy(fit_policy_config(cfg.policy, manager), seed=seed, model=model, modes=["eval"])
        statistics = [] if state_dict is None else load_agent(policy.eval_mode, state_dict)
        if any(statistics):
            manager.adopt_wrapper_states(statistics)
        mode = adapt_eval_mode(policy.eval_mode)
        if replay_path is not None:
            film = Path(replay_path) / "agent.gif"
            make_video(mode, filmable(evaluator_cfgs[0], env_fn), film, seed=seed, statistics=statistics)
        return play_episodes(manager, mode, cfg.env.n_evaluator_episode, rng=make_rng(seed, "eval"))
    finally:
        manager.close()
