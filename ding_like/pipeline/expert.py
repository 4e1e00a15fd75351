"""Expert of a policy that learns from one: the actor of another run, rebuilt from its folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ding_like.config import FrozenConfig, deep_merge, read_saved_config
from ding_like.data.rows import adapt_eval_mode
from ding_like.errors import CheckpointError, ConfigError, DingError
from ding_like.pipeline.statistics import load_agent
from ding_like.policy import Policy, create_policy
from ding_like.types import Actor, Config
from ding_like.utils.checkpoint import load_state

_BEST = "ckpt/ckpt_best.pth.tar"
# What the env says of a policy's section, and where it runs: learner and expert play in the same.
_OF_ENV = ("action_space", "action_low", "action_high", "cuda")
_OF_MODEL = ("obs_shape", "action_shape", "action_mask")


def give_expert(policy: Policy, cfg: FrozenConfig | None = None) -> None:
    """Give a policy that collects with an expert the one of its `collect.model_path`; do nothing for any other.

    `cfg` is the config of the run, whose env has to observe what the expert's did.
    """
    if getattr(policy, "needs_expert", False):  # a policy may be of any class
        policy.use_expert(load_expert(policy.cfg.collect.model_path, policy.cfg, env=None if cfg is None else cfg.env))


def load_expert(path: str, learner: Config, *, env: Config | None = None) -> Actor:
    """Return the evaluating actor of a run's folder, its best model, or of a checkpoint in one.

    `learner` is the policy section of the run that learns from it, fitted to its env, and `env` its section of the env.
    Raises ConfigError for what is no run and for another env, CheckpointError for weights of another model.
    """
    given = Path(path)
    folder = given if given.is_dir() else next((it for it in given.absolute().parents if _is_run(it)), given)
    if not _is_run(folder) or not given.exists():
        raise ConfigError(
            f"policy.collect.model_path is '{path}', expected the folder of a run with a total_config.py, or a "
            "checkpoint in one: train an expert first."
        )
    main = read_saved_config(folder / "total_config.py").main_config
    if env is not None and (own := _seen(env)) != (theirs := _seen(main["env"])):
        raise ConfigError(
            f"the expert in {folder} was trained with {theirs}, and this run has {own}: it would not see what it "
            "learned to act by. Give both the same."
        )
    section: dict[str, Any] = {**main["policy"], **{name: learner.get(name) for name in _OF_ENV}}
    sizes = {name: learner["model"][name] for name in _OF_MODEL if name in learner["model"]}
    section["model"] = deep_merge(section.get("model", {}), sizes)
    checkpoint = folder / _BEST if given.is_dir() else given
    try:
        with torch.random.fork_rng(devices=[]):  # the learner's weights are drawn as without an expert
            expert = create_policy(section, enable_field=["eval"])
        mode = adapt_eval_mode(expert.eval_mode)
        if any(load_agent(mode, dict(load_state(checkpoint)))):
            raise ConfigError(
                "the expert's env.wrappers have learned statistics (obs_norm, reward_norm), which this run does not "
                "have: train one without them."
            )
    except DingError as error:
        raise type(error)(f"policy.collect.model_path '{path}': {error}") from error
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        text = f"policy.collect.model_path '{path}' holds no expert for this env ({type(error).__name__}: {error})."
        raise CheckpointError(text) from error
    return mode.actor


def _is_run(folder: Path) -> bool:
    return (folder / "total_config.py").is_file()


def _seen(env: Mapping[str, Any]) -> dict[str, Any]:
    """Return what decides which observations an env gives."""
    return {f"env.{name}": env.get(name) or None for name in ("env_id", "wrappers")}
