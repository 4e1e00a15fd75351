"""The learner, its hooks, and the factory that builds one from a config."""

from __future__ import annotations

from typing import Any

from ding_like.errors import ConfigError
from ding_like.types import Config
from ding_like.utils.registries import LEARNER_REGISTRY
from ding_like.worker.learner.base import BaseLearner, LoadCkptHook, LogReduceHook, LogShowHook, SaveCkptHook
from ding_like.worker.learner.hooks import (
    Hook,
    LearnerHook,
    add_learner_hook,
    build_learner_hook_by_cfg,
    merge_hooks,
    register_learner_hook,
    show_hooks,
)


def create_learner(cfg: Config, **kwargs: Any) -> BaseLearner:
    """Build the learner that `cfg.type` names; `kwargs` go to its constructor.

    DI-engine's keys `learner_type` and `learner.learner_type` name it too; `import_names` are imported
    first. Raises RegistryError (a KeyError) for an unknown name.
    """
    di_engine_style = cfg.get("learner", {}).get("learner_type") or cfg.get("learner_type")
    learner_type = di_engine_style or cfg.get("type")
    if not learner_type:
        raise ConfigError("the learner's config has no 'type'; give one, for example type='base'.")
    cls = LEARNER_REGISTRY.get(learner_type, cfg.get("import_names", ()))
    learner: BaseLearner = cls(cfg, **kwargs)
    return learner


__all__ = [
    "BaseLearner",
    "Hook",
    "LearnerHook",
    "LoadCkptHook",
    "LogReduceHook",
    "LogShowHook",
    "SaveCkptHook",
    "add_learner_hook",
    "build_learner_hook_by_cfg",
    "create_learner",
    "merge_hooks",
    "register_learner_hook",
    "show_hooks",
]
