"""Say what every serial collector offers, and build one from a config."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, cast

from ding_like.errors import ConfigError
from ding_like.types import Config, EnvManager, Setting
from ding_like.utils.configurable import Configurable
from ding_like.utils.registries import SERIAL_COLLECTOR_REGISTRY
from ding_like.worker.collector.row_taker import Samples
from ding_like.worker.collector.stop_rule import StopRule

# What a collector is asked for so many of.
Unit: TypeAlias = Literal["rows", "episodes"]


class PolicyMode(Protocol):
    """Be a mode of a policy: one of ours (`types.CollectMode`), or any named tuple with DI-engine's fields."""

    @property
    def get_attribute(self) -> Callable[[str], object]: ...


class ISerialCollector(Configurable, ABC):
    """Collect data by stepping environments with a policy, in this process."""

    # What the first argument of `collect` counts.
    unit: ClassVar[Unit]

    @abstractmethod
    def reset_env(self, _env: EnvManager | None = None) -> None:
        """Start from fresh episodes, in a new env manager if one is given."""

    # What a policy is differs between collectors (a `PolicyMode`, or one for each player): hence Any.
    @abstractmethod
    def reset_policy(self, _policy: Any = None) -> None:
        """Act with a new collect mode if one is given; forget recurrent state in any case."""

    @abstractmethod
    def reset(self, _policy: Any = None, _env: EnvManager | None = None) -> None:
        """Reset env, policy and all counters."""

    @abstractmethod
    def collect(self, per_collect_target: int | None) -> object:
        """Collect up to the target, which each collector defines, and return the data."""

    def collect_rows(
        self,
        rows: int | None = None,
        *,
        train_iter: int = 0,
        policy_kwargs: Setting | None = None,
        stop: StopRule | None = None,
    ) -> Samples:
        """Collect training rows, whatever `collect` counts: about `rows`, by default what the policy asks for.

        A collector of one's own need not have this: `rows` is then its target. Raises ConfigError if such a one is
        given a rule to stop by.
        """
        if stop is not None:
            raise ConfigError(f"{type(self).__name__} takes no stop rules: define collect_rows with a `stop`.")
        target = () if rows is None else (rows,)
        # Pipelines ask every collector with these two names.
        collect = cast(Callable[..., Samples], self.collect)
        return collect(*target, train_iter=train_iter, policy_kwargs=policy_kwargs)

    @property
    @abstractmethod
    def envstep(self) -> int:
        """Return the number of env steps taken so far, over all lanes."""


def array_manager(env: EnvManager) -> EnvManager:
    """Return the env manager itself, or the one inside of one in DI-engine's style, which steps dicts by env id."""
    inside: EnvManager = getattr(env, "array_manager", env)
    return inside


def game_manager(env: EnvManager) -> EnvManager:
    """Return the env manager itself, or the manager of games of one in DI-engine's style (`BaseEnvManager.games`)."""
    games: Callable[[], EnvManager] | None = getattr(env, "games", None)
    return array_manager(env) if games is None else games()


def create_serial_collector(cfg: Config, **kwargs: object) -> ISerialCollector:
    """Build the collector that `cfg.type` names; raises RegistryError for an unknown name."""
    collector: ISerialCollector = SERIAL_COLLECTOR_REGISTRY.build(
        cfg["type"], cfg=cfg, import_names=cfg.get("import_names", ()), **kwargs
    )
    return collector


def get_serial_collector_cls(cfg: Config) -> type[ISerialCollector]:
    """Return the class that `cfg.type` names; raises RegistryError for an unknown name."""
    cls: type[ISerialCollector] = SERIAL_COLLECTOR_REGISTRY.get(cfg["type"], cfg.get("import_names", ()))
    return cls
