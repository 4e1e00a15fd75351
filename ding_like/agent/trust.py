"""Check of the code that a run's folder names: a stranger may have written it, so the caller must have allowed it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import torch

from ding_like.config import ConfigFile, read_saved_config
from ding_like.config.objects import is_object_text
from ding_like.envs.wrappers import find_wrapper
from ding_like.errors import ConfigError, RegistryError
from ding_like.policy import Policy
from ding_like.types import Config, Json
from ding_like.utils.imports import import_code, is_imported, split_import_path
from ding_like.utils.registries import ENV_REGISTRY, MODEL_REGISTRY, POLICY_REGISTRY, own_path

# Packages whose import runs no code of the folder's author.
_KNOWN = ("ding_like", "dizoo", "gymnasium", "torch", "pettingzoo", "mpe2")


def allow_code(
    folder: str | Path,
    *,
    env: Config,
    policy: Config,
    others: Config | None = None,
    import_names: Sequence[str] = (),
) -> None:
    """Import `import_names`, and raise ConfigError for other code that a run's env, policy or `others` name.

    Code of this package and modules that this process has imported already are allowed, too. A class that is named by
    its import path must be what it is used as: a Policy, a torch.nn.Module, a gymnasium.Wrapper, an env.
    """
    allowed = {own_path(name) for name in import_names}
    for name in allowed:
        try:
            import_code(name)
        except ImportError as error:
            raise ConfigError(
                f"import_names: {name} cannot be imported ({error}); put its folder on PYTHONPATH."
            ) from error
    modules = _modules_of({"env": env, "policy": policy, "others": others})
    allowed.update(import_names)
    foreign = [module for module in dict.fromkeys(modules) if not (module in allowed or _is_known(module))]
    if foreign:
        raise ConfigError(
            f"'{folder}' names code that is not imported here: {', '.join(foreign)}. The folder of a stranger could "
            f"run anything that way. If you trust it, allow it: import_names={foreign!r} from Python, "
            f"{' '.join(f'--import {module}' for module in foreign)} on the command line; or import it first."
        )
    for key, path, what in _misused_classes(env, policy):
        raise ConfigError(f"'{folder}' names {path} as {key}, which is no class of {what}.")


def _is_known(module: str) -> bool:
    """Return whether importing a module runs no code but that of known packages."""
    return (module.partition(".")[0] in _KNOWN and not module.endswith(".py")) or is_imported(module)


def _modules_of(value: Json, key: str = "") -> Iterator[str]:
    """Yield the modules that a config names at any depth, as registries, env ids and models read them."""
    if key == "import_names":
        names = value if isinstance(value, (list, tuple, set, Mapping)) else [value]
        yield from (own_path(str(name)) for name in names if name)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _modules_of(str(name))  # a dict in place of a list is read as its keys
            yield from _modules_of(inner, str(name))
    elif isinstance(value, (list, tuple, set)):
        for inner in value:
            yield from _modules_of(inner, key)
    elif isinstance(value, str):
        if is_object_text(value):
            yield value.partition(":")[2].partition("(")[0].rpartition(".")[0] or value
        elif path := split_import_path(value):
            yield path[0]


def _misused_classes(env: Config, policy: Config) -> Iterator[tuple[str, str, str]]:
    """Yield (key, import path, what it must be) of each class that is named by its import path but is not."""
    model = policy.get("model")
    named: list[tuple[str, Any, Callable[[Any], object], str, type[object] | None]] = [
        ("policy.type", policy.get("type"), POLICY_REGISTRY.get, "Policy", Policy),
        ("env.type", env.get("type"), ENV_REGISTRY.get, "an env", None),
    ]
    if isinstance(model, Mapping):
        named.append(("policy.model.type", model.get("type"), MODEL_REGISTRY.get, "torch.nn.Module", torch.nn.Module))
    for number, spec in enumerate(env.get("wrappers") or ()):
        kind = spec.get("type") if isinstance(spec, Mapping) else spec
        named.append((f"env.wrappers[{number}]", kind, find_wrapper, "gymnasium.Wrapper", gymnasium.Wrapper))
    for key, path, find, what, base in named:
        if isinstance(path, str) and ":" in path:
            found = find(path)
            is_env = base is None and all(callable(getattr(found, name, None)) for name in ("reset", "step"))
            if not (isinstance(found, type) and (is_env or (base is not None and issubclass(found, base)))):
                yield key, path, what


def allow_saved_config(folder: Path, import_names: Sequence[str] = ()) -> ConfigFile:
    """Return the config that a run saved, read as data, without trackers. Raises ConfigError as `allow_code` does."""
    main, create = read_saved_config(folder / "total_config.py")
    env, policy = ({**create.get(part, {}), **main.get(part, {})} for part in ("env", "policy"))
    others = {"create_config": create, "reward_model": main.get("reward_model")}
    allow_code(folder, env=env, policy=policy, others=others, import_names=import_names)
    return ConfigFile({**main, "trackers": {}}, create)


def missing_wrappers(specs: Sequence[Config | str]) -> list[str]:
    """Return the names of wrappers that nothing has registered yet."""
    missing = []
    for spec in specs:
        name = spec.get("type") if isinstance(spec, Mapping) else spec
        try:
            if not (isinstance(name, str) and ":" in name):
                find_wrapper(name)
        except (ConfigError, RegistryError):
            missing.append(str(name))
    return missing
