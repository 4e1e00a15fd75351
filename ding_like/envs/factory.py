"""Make environments from a config: by registered type, by gymnasium id, or by import path."""

from __future__ import annotations

import copy
import inspect
import shlex
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
from easydict import EasyDict

from ding_like.config import to_plain
from ding_like.envs.adapters import as_gymnasium, as_lane_env
from ding_like.envs.di_engine_style import BaseEnv
from ding_like.envs.spaces import AnyEnv
from ding_like.envs.wrappers import wrap
from ding_like.envs.wrappers.pictures import recipe_of
from ding_like.errors import ConfigError, DingError, EnvError, describe_error
from ding_like.types import Config, EnvFn, EnvManager, Factory
from ding_like.utils.registries import ENV_MANAGER_REGISTRY, ENV_REGISTRY


def env_class(cfg: Config) -> Factory:
    """Return what makes the env of `cfg.type`: a registered class, or what an import path 'module:Name' names.

    Raises RegistryError, with close names, where there is none.
    """
    return ENV_REGISTRY.get(cfg.get("type", "gymnasium"), cfg.get("import_names", ()))


def make_env(cfg: Config) -> AnyEnv:
    """Make one environment.

    A registered class and a BaseEnv are given the env config; a class by import path is given `cfg.kwargs`. Hybrid
    actions are rows: see `HybridRows`.
    """
    make = env_class(cfg)
    if ":" in cfg.get("type", "gymnasium"):
        _check_kwargs(make, cfg)
    takes_cfg = ":" not in cfg.get("type", "gymnasium") or (isinstance(make, type) and issubclass(make, BaseEnv))
    env = make(EasyDict(to_plain(cfg))) if takes_cfg else make(**to_plain(cfg.get("kwargs", {})))
    return as_lane_env(wrap(as_gymnasium(env), cfg.get("wrappers", ())))


def make_lane_env(make: EnvFn) -> AnyEnv:
    """Return one lane's env, as managers step it.

    Raises EnvError, with the line of the user's code and the command that looks into it, for an env whose constructor
    raises and for one without spaces.
    """
    try:
        made = make()
    except DingError:
        raise  # its message names the fault
    except Exception as error:  # an env may raise anything
        look = f"To look into it: {check_command(make)}"
        raise EnvError(f"the env cannot be made: {describe_error(error)}. {look}") from error
    env = as_lane_env(made)
    for name in () if hasattr(env, "num_players") else ("observation_space", "action_space"):
        space = getattr(env, name, None)
        if not isinstance(space, gymnasium.Space):
            seen = "is not set" if space is None else f"is {space!r}, which is no gymnasium space"
            raise EnvError(
                f"{name} of {type(env.unwrapped).__name__} {seen}: set it in the constructor, as in self.{name} = "
                f"gymnasium.spaces.Discrete(2). To look into it: {check_command(make)}"
            )
    return env


def check_command(make: EnvFn) -> str:
    """Return the command that checks one such env: a line for the shell, or one of Python."""
    cfg = config_of(make)
    if cfg is None:
        return "from ding_like.envs import check_env; print(*check_env(make_env))"
    own = {**cfg.get("kwargs", {}), **({"wrappers": cfg["wrappers"]} if cfg.get("wrappers") else {})}
    arguments = [shlex.quote(f"{key}={to_plain(value)!r}") for key, value in own.items()]
    modules = cfg.get("import_names") or ()
    imports = [f"--import {shlex.quote(each)}" for each in ([modules] if isinstance(modules, str) else modules)]
    env_id = cfg.get("env_id") if cfg.get("type", "gymnasium") == "gymnasium" else cfg["type"]
    return " ".join(["ding check-env", shlex.quote(str(env_id)), *arguments, *imports])


def _check_kwargs(make: Callable[..., Any], cfg: Config) -> None:
    """Refuse arguments that a class by import path does not take."""
    kwargs = to_plain(cfg.get("kwargs", {}))
    if isinstance(make, type) and issubclass(make, BaseEnv):
        return
    try:
        signature = inspect.signature(make)
    except ValueError:  # of a class in C
        return
    try:
        signature.bind(**kwargs)
    except TypeError as error:
        raise ConfigError(f"env.kwargs {kwargs} do not fit {cfg['type']}: {error}; it takes {signature}.") from error


class EnvFactory:
    """Callable that makes one lane's environment; can be pickled if `env_fn` can.

    `env_fn` takes the config, as in DI-engine's `env_setting`: a class, a function, or by default `make_env`.
    """

    def __init__(self, cfg: Config, env_fn: Factory = make_env) -> None:
        self.cfg = EasyDict(to_plain(cfg))
        self.env_fn = env_fn

    def __call__(self) -> AnyEnv:
        return as_lane_env(self.env_fn(self.cfg))


def get_vec_env_setting(
    cfg: Config, collect: bool = True, eval_: bool = True
) -> tuple[Callable[..., AnyEnv], list[EasyDict], list[EasyDict]]:
    """Return (env_fn, collector env configs, evaluator env configs) for an env config, one config for each env.

    A class with `create_collector_env_cfg` and `create_evaluator_env_cfg` is asked for the configs. Without `collect`
    or `eval_` that list is empty.
    """
    make = env_class(cfg)
    collector = _env_configs(make, "collector", cfg) if collect else []
    evaluator = _env_configs(make, "evaluator", cfg) if eval_ else []
    return make_env, collector, evaluator


def _env_configs(make: Callable[..., Any], role: str, cfg: Config) -> list[EasyDict]:
    create = getattr(make, f"create_{role}_env_cfg", None)
    if create is not None:
        return [EasyDict(to_plain(each)) for each in create(EasyDict(to_plain(cfg)))]
    fit = getattr(make, "fitted_config", None)
    return lane_configs(cfg if fit is None else fit(cfg), role)


def lane_configs(cfg: Config, role: str) -> list[EasyDict]:
    """Return the config of each env of a role, "collector" or "evaluator": copies of the section, without its numbers.

    Raises ConfigError where `cfg` has no valid number of them.
    """
    own = to_plain(cfg)
    num = own.get(f"{role}_env_num")
    if not isinstance(num, int) or num < 1:
        raise ConfigError(f"env.{role}_env_num is {num!r}, expected a positive int.")
    for key in ("collector_env_num", "evaluator_env_num", "manager"):
        own.pop(key, None)
    return [EasyDict(copy.deepcopy(own)) for _ in range(num)]


def create_env_manager(cfg: Config, env_fn: Sequence[EnvFn]) -> EnvManager:
    """Make the manager of `cfg.type` over one environment for each callable of `env_fn`."""
    manager: EnvManager = ENV_MANAGER_REGISTRY.build(
        cfg.get("type", "base"), list(env_fn), cfg, import_names=cfg.get("import_names", ())
    )
    return manager


def config_of(env_fn: EnvFn) -> Config | None:
    """Return the env config behind a callable that `make_env` works for, None for any other callable."""
    func, cfg = recipe_of(env_fn)
    return cfg if func is make_env else None
