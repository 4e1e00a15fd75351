"""Compile a config from classes, as scripts written for DI-engine do: those that a create_config would name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, overload

from easydict import EasyDict

from ding_like.config import compile as core
from ding_like.config.frozen import FrozenConfig
from ding_like.config.parts import PARTS
from ding_like.config.tree import Tree, deep_merge, get_path, to_plain
from ding_like.errors import ConfigError
from ding_like.utils.registries import Registry

# The env of a script that makes its envs itself: nothing is known about the keys of its section.
SCRIPT_ENV = "ding_like.envs.env_wrappers:script_env"


@overload
def compile_config(
    cfg: Mapping[str, Any],
    env_manager: Mapping[str, Any],  # create_config
    *,
    seed: int | None = None,
    renew_dir: bool = True,
    save: bool | None = None,
    **settings: Any,  # `overrides`, `source`, `exp_name` and `quiet` of `ding_like.config.compile.compile_config`
) -> FrozenConfig: ...


@overload
def compile_config(
    cfg: Mapping[str, Any],
    env_manager: type[Any] | None = None,
    policy: type[Any] | None = None,
    learner: type[Any] | None = None,
    collector: type[Any] | None = None,
    evaluator: type[Any] | None = None,
    buffer: type[Any] | None = None,
    env: type[Any] | None = None,
    reward_model: type[Any] | None = None,
    world_model: type[Any] | None = None,
    seed: int | None = None,
    auto: bool = False,
    create_cfg: Mapping[str, Any] | None = None,
    save_cfg: bool = True,
    save_path: str = "total_config.py",
    renew_dir: bool = True,
    **settings: Any,
) -> Any: ...  # an EasyDict, which has no annotations


def compile_config(
    cfg: Mapping[str, Any],
    env_manager: type[Any] | Mapping[str, Any] | None = None,
    policy: type[Any] | None = None,
    learner: type[Any] | None = None,
    collector: type[Any] | None = None,
    evaluator: type[Any] | None = None,
    buffer: type[Any] | None = None,
    env: type[Any] | None = None,
    reward_model: type[Any] | None = None,
    world_model: type[Any] | None = None,
    seed: int | None = None,
    auto: bool = False,  # a place of DI-engine's signature: what is given says which form is meant
    create_cfg: Mapping[str, Any] | None = None,
    save_cfg: bool = True,
    save_path: str = "total_config.py",
    renew_dir: bool = True,
    *,
    save: bool | None = None,
    **settings: Any,
) -> Any:
    """Return the config of a run: the defaults of classes, then the user's.

    `compile_config(main_config, create_config)` is ours: it returns a frozen config; `ding_like.config.compile` says
    what else it takes. The other two forms are DI-engine's: `create_cfg=create_config, auto=True`, and classes instead
    (`compile_config(cfg, BaseEnvManager, DQNPolicy, BaseLearner, ...)`; one that is None is the usual one). They return
    a mutable EasyDict. A class that is not registered is registered under its own name. Where neither `env` nor the
    config names an env, the script makes its envs itself, and the keys of the env section are its own.

    Raises ConfigError with every fault at once, and where nothing names a policy.
    """
    is_saved = save_cfg if save is None else save
    if isinstance(env_manager, Mapping):
        return core.compile_config(cfg, env_manager, seed=seed, renew_dir=renew_dir, save=is_saved, **settings)
    if world_model is not None:
        raise ConfigError("there are no world models here; leave world_model out.")
    if save_path != "total_config.py":
        raise ConfigError(
            f"save_path is {save_path!r}, but the config is always saved as total_config.py; leave it out."
        )
    classes = {
        "env": env,
        "env_manager": env_manager,
        "policy": policy,
        "learner": learner,
        "collector": collector,
        "evaluator": evaluator,
        "replay_buffer": buffer,
        "reward_model": reward_model,
    }
    named = _create_config_of({name: cls for name, cls in classes.items() if cls is not None})
    create = deep_merge(to_plain(create_cfg or {}), named)
    if "policy" not in create and "type" not in (get_path(cfg, "policy") or {}):
        how = "with auto=True give create_cfg=create_config" if create_cfg is None else "create_cfg names none"
        raise ConfigError(f"compile_config needs a policy: pass its class, or {how}.")
    if "env" not in create and "type" not in (get_path(cfg, "env") or {}):
        create["env"] = {"type": SCRIPT_ENV}
    frozen = core.compile_config(cfg, create, seed=seed, renew_dir=renew_dir, save=is_saved, **settings)
    return EasyDict(to_plain(frozen))


def _create_config_of(classes: Mapping[str, Any]) -> Tree:
    """Return the create_config that names these classes, by the name of their part."""
    registry_of = {part.name: part.registry for part in PARTS}
    return {name: _section(name, cls, registry_of[name]) for name, cls in classes.items()}


def _section(part: str, cls: Any, registry: Registry[Any]) -> Tree:
    """Return the section of create_config that names a class; one in DI-engine's style says what it is made of."""
    if not isinstance(cls, type):
        raise ConfigError(f"compile_config takes a class for {part}, got {type(cls).__name__} {cls!r}")
    name = getattr(cls, "manager_type", None) if part == "env_manager" else registry.name_of(cls)
    if name is None:
        registry.register()(cls)
        name = cls.__name__
    if cls.__module__ in ("__main__", "__mp_main__") or cls.__module__.startswith("ding_like."):
        return {"type": name}
    return {"type": name, "import_names": [cls.__module__]}
