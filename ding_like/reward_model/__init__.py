"""Reward models: what gives transitions rewards, beside those of the env or in their place; one file a method."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ding_like.reward_model.base import LogProb, MeanOfLearners, RewardModel, Sizes
from ding_like.reward_model.di_engine import BaseRewardModel, DiEngineRewardModel
from ding_like.types import Config, RewardModelLike
from ding_like.utils.registries import REWARD_MODEL_REGISTRY

__all__ = ["BaseRewardModel", "RewardModel", "create_reward_model", "get_reward_model_cls", "reward_model_section"]


def reward_model_section(cfg: Config) -> Any:  # Any: a section of the config
    """Return the section `reward_model` of a run's config, None where it names no model."""
    section = cfg.get("reward_model")
    return section if section and section.get("type") else None


def get_reward_model_cls(section: Config) -> type[Any]:
    """Return the class that a section names. Raises RegistryError for an unknown name."""
    return REWARD_MODEL_REGISTRY.get(section["type"], section.get("import_names") or ())


def create_reward_model(
    cfg: Config,
    sizes: Sizes,
    *,
    seed: int,
    rng: np.random.Generator,
    device: str | torch.device = "cpu",
    batches_per_collect: int = 1,
    mean: MeanOfLearners | None = None,
    log_prob: LogProb | None = None,
) -> RewardModelLike:
    """Build the reward model that `cfg.type` names; its weights follow from `seed` alone.

    `log_prob` is the policy's, None where it has none.
    Raises RegistryError for an unknown name, ConfigError for demonstrations that do not fit.
    """
    cls = get_reward_model_cls(cfg)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if not issubclass(cls, RewardModel):
            return DiEngineRewardModel(cls(cfg, str(device), None))
        return cls(
            cfg, sizes, rng=rng, device=device, batches_per_collect=batches_per_collect, mean=mean, log_prob=log_prob
        )
