"""Collect training rows with a trained policy, under DI-engine's name."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ding_like.data.batch import TransitionBatch
from ding_like.data.segment_file import save_columns
from ding_like.entry.plan import InputConfig, load_config
from ding_like.errors import ConfigError
from ding_like.pipeline.build.envs import EnvSetting, build_collect_env
from ding_like.pipeline.build.parts import build_policy
from ding_like.pipeline.build.process import training_process
from ding_like.pipeline.build.spaces import fit_policy_config
from ding_like.pipeline.statistics import load_agent
from ding_like.utils.checkpoint import load_state
from ding_like.utils.log import shown_as_by_the_command
from ding_like.utils.seeding import make_rng
from ding_like.worker import SampleSerialCollector

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)


@shown_as_by_the_command()
def collect_demo_data(
    input_cfg: InputConfig,
    seed: int,
    collect_count: int,
    expert_data_path: str | Path,
    env_setting: EnvSetting | None = None,
    model: torch.nn.Module | None = None,
    state_dict: Mapping[str, Any] | None = None,
    state_dict_path: str | Path | None = None,
) -> None:
    """Write `collect_count` training rows of a policy's collect mode to the file `expert_data_path`.

    The weights are those of `state_dict`, else of the checkpoint at `state_dict_path`, else of `model`. The file holds
    columns (safetensors), which `load_data` of a buffer and `load_columns` of `ding_like.data.segment_file` read.
    Raises ConfigError for fewer than one row, without weights, and for a policy whose rows are no columns.
    """
    if collect_count < 1:
        raise ConfigError(f"collect_count is {collect_count}, expected 1 or more.")
    if state_dict is None and state_dict_path is not None:
        state_dict = load_state(state_dict_path)
    if state_dict is None and model is None:
        raise ConfigError("collect_demo_data got no weights; give state_dict_path=EXP/ckpt/ckpt_best.pth.tar.")
    cfg = load_config(input_cfg, seed=seed, save=False, renew_dir=False, builds_model=model is None)
    with training_process():
        manager = build_collect_env(cfg, seed=seed, env_setting=env_setting)
        try:
            policy = build_policy(fit_policy_config(cfg.policy, manager), seed=seed, model=model, modes=["collect"])
            statistics = [] if state_dict is None else load_agent(policy.collect_mode, state_dict)
            if any(statistics):
                manager.adopt_wrapper_states(statistics)
            rng, exp_name = make_rng(seed, "collector"), cfg.exp_name
            section = {**SampleSerialCollector.config, "type": "sample"}
            collector = SampleSerialCollector(section, manager, policy.collect_mode, exp_name=exp_name, rng=rng)
            rows = collector.collect(n_sample=collect_count)
        finally:
            manager.close()
    if not isinstance(rows, TransitionBatch):
        raise ConfigError(f"policy '{cfg.policy.type}' makes rows of objects, which have no place in columns.")
    save_columns(expert_data_path, rows.columns)
    logger.info("wrote %d rows of '%s' to %s", len(rows), cfg.policy.type, expert_data_path)
