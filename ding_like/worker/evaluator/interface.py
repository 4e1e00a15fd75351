"""Say what every serial evaluator offers, and build one from a config."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from ding_like.types import Config
from ding_like.utils.configurable import Configurable
from ding_like.utils.registries import SERIAL_EVALUATOR_REGISTRY


class ISerialEvaluator(Configurable, ABC):
    """Evaluate a policy, in this process."""

    # What an env is differs between evaluators (a manager; a data loader and a metric), and so does what they judge and
    # are asked for: hence Any.
    @abstractmethod
    def reset_env(self, _env: Any = None) -> None:
        """Evaluate in another env if one is given."""

    @abstractmethod
    def reset_policy(self, _policy: Any = None) -> None:
        """Evaluate another policy if one is given."""

    @abstractmethod
    def reset(self, _policy: Any = None, _env: Any = None) -> None:
        """Reset env, policy and all counters."""

    @abstractmethod
    def close(self) -> None:
        """Close what the evaluator opened; may be called again."""

    @abstractmethod
    def should_eval(self, train_iter: int) -> bool:
        """Tell whether it is time for the next evaluation."""

    @abstractmethod
    def eval(self, *args: Any, **kwargs: Any) -> object:
        """Evaluate once."""


def create_serial_evaluator(cfg: Config, **kwargs: object) -> ISerialEvaluator:
    """Build the evaluator that `cfg.type` names, 'interaction' by default; raises RegistryError for an unknown name."""
    evaluator: ISerialEvaluator = SERIAL_EVALUATOR_REGISTRY.build(
        cfg.get("type", "interaction"), cfg=cfg, import_names=cfg.get("import_names", ()), **kwargs
    )
    return evaluator
