"""Evaluate a checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ding_like.config import to_plain
from ding_like.entry.serial_entry import InputConfig, load_config
from ding_like.envs import EnvFactory, create_env_manager, get_vec_env_setting
from ding_like.pipeline.build import EnvSetting, prepare_process
from ding_like.pipeline.spaces import fit_policy_config
from ding_like.policy import create_policy
from ding_like.utils.checkpoint import load_state
from ding_like.utils.seeding import set_pkg_seed
from ding_like.worker import create_serial_evaluator

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)


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

    The weights are those of `model`, else `state_dict`, else the checkpoint at `load_path`. Writes nothing.
    """
    cfg = load_config(input_cfg, seed=seed, overrides=overrides, save=False, renew_dir=False)
    prepare_process()
    env_fn, _, evaluator_cfgs = env_setting or get_vec_env_setting(cfg.env, collect=False)
    manager = create_env_manager(cfg.env.manager, [EnvFactory(env, env_fn) for env in evaluator_cfgs])
    manager.seed(seed)
    try:
        manager.launch()
        set_pkg_seed(seed, use_cuda=bool(cfg.policy.cuda))
        policy = create_policy(fit_policy_config(cfg.policy, manager), model=model, enable_field=["eval"])
        if state_dict is None and load_path is not None:
            state_dict = load_state(load_path)
        if state_dict is not None:
            policy.eval_mode.load_state_dict(state_dict)
        evaluator = create_serial_evaluator(
            to_plain(cfg.policy.eval.evaluator), env=manager, policy=policy.eval_mode, seed=seed
        )
        result = evaluator.play(cfg.env.n_evaluator_episode, number=0)
    finally:
        manager.close()
    logger.info("mean return %.4g over %d episodes", result.mean, len(result.returns))
    return result.mean
