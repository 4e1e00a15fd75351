"""Make environments from a config: by registered type, by gymnasium id, or by import path."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
from easydict import EasyDict

from ding_like.config import to_plain
from ding_like.envs.di_engine_style import BaseEnv, as_gymnasium
from ding_like.envs.hybrid import as_lane_env
from ding_like.envs.wrappers import wrap
from ding_like.errors import ConfigError
from ding_like.types import EnvManager
from ding_like.utils.registries import ENV_MANAGER_REGISTRY, ENV_REGISTRY

AnyEnv = gymnasium.Env[Any, Any]  # what an env observes and takes differs from env to env
EnvConfig = Mapping[str, Any]


def env_class(cfg: EnvConfig) -> Callable[..., Any]:
    """Return what makes the env of `cfg.type`: a registered class, or what an import path 'module:Name' names.

    Raises RegistryError, with close names, where there is none.
    """
    return ENV_REGISTRY.get(cfg.get("type", "gymnasium"), cfg.get("import_names", ()))


def make_env(cfg: EnvConfig) -> AnyEnv:
    """Make one environment.

    A registered class and a BaseEnv are given the env config; a class by import path is given `cfg.kwargs`. Hybrid
    actions are rows: see `envs/hybrid.py`.
    """
    make = env_class(cfg)
    takes_cfg = ":" not in cfg.get("type", "gymnasium") or (isinstance(make, type) and issubclass(make, BaseEnv))
    env = make(EasyDict(to_plain(cfg))) if takes_cfg else make(**to_plain(cfg.get("kwargs", {})))
    return as_lane_env(wrap(as_gymnasium(env), cfg.get("wrappers", ())))


class EnvFactory:
    """Make one lane's environment when called; can be pickled if `env_fn` can.

    `env_fn` takes the config, as in DI-engine's `env_setting`: a class, a function, or by default `make_env`.
    """

    def __init__(self, cfg: EnvConfig, env_fn: Callable[..., Any] = make_env) -> None:
        self.cfg = EasyDict(to_plain(cfg))
        self.env_fn = env_fn

    def __call__(self) -> AnyEnv:
        return as_lane_env(self.env_fn(self.cfg))


def get_vec_env_setting(
    cfg: EnvConfig, collect: bool = True, eval_: bool = True
) -> tuple[Callable[..., AnyEnv], list[EasyDict], list[EasyDict]]:
    """Return (env_fn, collector env configs, evaluator env configs) for an env config, one config for each env.

    A class with `create_collector_env_cfg` and `create_evaluator_env_cfg` is asked for the configs. Without `collect`
    or `eval_` that list is empty.
    """
    make = env_class(cfg)
    collector = _env_configs(make, "collector", cfg) if collect else []
    evaluator = _env_configs(make, "evaluator", cfg) if eval_ else []
    return make_env, collector, evaluator


def _env_configs(make: Callable[..., Any], role: str, cfg: EnvConfig) -> list[EasyDict]:
    create = getattr(make, f"create_{role}_env_cfg", None)
    if create is not None:
        return [EasyDict(to_plain(each)) for each in create(EasyDict(to_plain(cfg)))]
    return lane_configs(cfg, role)


def lane_configs(cfg: EnvConfig, role: str) -> list[EasyDict]:
    """Return the config of each env of a role, "collector" or "evaluator": copies of the section, without its numbers.

    Raises ConfigError where `cfg` does not say how many there are.
    """
    own = to_plain(cfg)
    num = own.get(f"{role}_env_num")
    if not isinstance(num, int) or num < 1:
        raise ConfigError(f"env.{role}_env_num is {num!r}, expected a positive int.")
    for key in ("collector_env_num", "evaluator_env_num", "manager"):
        own.pop(key, None)
    return [EasyDict(copy.deepcopy(own)) for _ in range(num)]


def create_env_manager(cfg: Mapping[str, Any], env_fn: Sequence[Callable[[], Any]]) -> EnvManager:
    """Make the manager of `cfg.type` over one environment for each callable of `env_fn`."""
    manager: EnvManager = ENV_MANAGER_REGISTRY.build(
        cfg.get("type", "base"), list(env_fn), cfg, import_names=cfg.get("import_names", ())
    )
    return manager


def config_of(env_fn: Callable[[], Any]) -> EnvConfig | None:
    """Return the env config behind a callable that `make_env` works for, None for any other callable."""
    if isinstance(env_fn, EnvFactory) and env_fn.env_fn is make_env:
        config: EnvConfig = env_fn.cfg
        return config
    if isinstance(env_fn, functools.partial) and env_fn.func is make_env:
        found: EnvConfig | None = env_fn.keywords.get("cfg", env_fn.args[0] if env_fn.args else None)
        return found
    return None
