"""Run a config file and take its configs."""

from __future__ import annotations

import difflib
import importlib.util
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from ding_like.config.own_code import run_config, with_own_code
from ding_like.errors import ConfigError

_logger = logging.getLogger(__name__)

_JSON_WORDS = {"true": "True", "false": "False", "null": "None"}
_NAMES = ("main_config", "create_config", "system_config")


class _Configs(NamedTuple):
    main_config: dict[str, Any]
    create_config: dict[str, Any]


class ConfigFile(_Configs):
    """Hold what a config file defines, as it stands there; it unpacks into `main_config, create_config`.

    `system_config` is None where there is none: only parallel pipelines have one.
    """

    system_config: dict[str, Any] | None

    def __new__(cls, main: dict[str, Any], create: dict[str, Any], system: dict[str, Any] | None = None) -> ConfigFile:
        """Return the configs of one file."""
        file = super().__new__(cls, main, create)
        file.system_config = system
        return file


def read_config(path: str | os.PathLike[str]) -> ConfigFile:
    """Return `main_config`, `create_config` and, where there is one, `system_config` of a Python file.

    The file runs as a module of its own, and its folder joins the end of `sys.path`, so that it and its `import_names`
    may name modules beside it. Where it registers envs, policies or other parts, it joins the `import_names` of those:
    every process of the run, and a resumed one, then knows them. Raises ConfigError if the file is missing, fails or
    lacks a config.
    """
    file = _existing(Path(path))
    try:
        module, sections = run_config(file)
    except ConfigError as error:
        if fix := _fix(error.__cause__):
            raise ConfigError(f"{error}; {fix}") from error.__cause__
        raise
    found = {name: getattr(module, name, None) for name in _NAMES}
    if found["main_config"] is None or found["create_config"] is None:
        found |= _named_otherwise(module, found)
    for name, value in found.items():
        if value is None and name != "system_config":
            raise ConfigError(f"{file} defines no {name}; {_hint(module, name)}")
        if value is not None and not isinstance(value, dict):
            is_comma = isinstance(value, tuple) and len(value) == 1  # name = dict(...),
            fix = "; remove the comma behind it" if is_comma else ""
            raise ConfigError(
                f"{file}: {name} must be a dict or an EasyDict, got {type(value).__name__} {value!r}{fix}"
            )
    create = with_own_code(found["main_config"], found["create_config"] or {}, file, sections)
    return ConfigFile(found["main_config"] or {}, create, found["system_config"])


def _fix(cause: BaseException | None) -> str:
    """Return what to write instead of what a config file failed at, where that is known."""
    if isinstance(cause, NameError) and cause.name in _JSON_WORDS:
        return f"a config is Python, not JSON: write {_JSON_WORDS[cause.name]}"
    if isinstance(cause, ModuleNotFoundError) and cause.name == "gym":
        return "gymnasium is its successor: import gymnasium as gym"
    if isinstance(cause, SystemExit):
        return "a config is data, which `ding` reads: take argparse and exit() out, and give values as KEY=VALUE"
    return ""


def given_configs(configs: Any, *, has_system: bool = False) -> tuple[Any, ...]:
    """Return what stands in place of a config file: (main_config, create_config), or those and a system_config.

    Raises ConfigError for anything else.
    """
    numbers = (2, 3) if has_system else (2,)
    if isinstance(configs, (tuple, list)) and len(configs) in numbers:
        return tuple(configs)
    wanted = "(main_config, create_config)" + (", or those and a system_config" if has_system else "")
    if isinstance(configs, Mapping):
        got = f"one dict with the keys {', '.join(map(str, configs))}"
    elif isinstance(configs, (tuple, list)):
        got = f"{len(configs)} of them"
    else:
        got = f"{type(configs).__name__} {configs!r}"
    raise ConfigError(f"a config is a .py file or {wanted}; got {got}.")


def _named_otherwise(module: ModuleType, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configs that stand in a file of DI-engine's under names of their own, where each can be only one.

    Its files call them `<x>_config` and `<x>_create_config`, and give them the names that are looked for below.
    """
    own = {key: value for key, value in vars(module).items() if isinstance(value, Mapping) and key.endswith("_config")}
    creates = {key: value for key, value in own.items() if key.endswith("create_config")}
    mains = {key: value for key, value in own.items() if key not in creates and {"env", "policy"} <= set(value)}
    chosen = {}
    for name, candidates in (("main_config", mains), ("create_config", creates)):
        if found[name] is None and len({id(value) for value in candidates.values()}) == 1:
            key, chosen[name] = next(iter(candidates.items()))
            _logger.info("%s defines no %s; %s is taken", Path(str(module.__file__)).name, name, key)
    return chosen


def _existing(file: Path) -> Path:
    if file.is_dir():
        inside = [entry.name for entry in sorted(file.glob("*config*.py"))]
        raise ConfigError(f"{file} is a folder; give a config file" + (f", such as {inside[0]}" if inside else ""))
    if file.suffix != ".py":
        raise ConfigError(f"a config is a Python file with the ending .py, got '{file}'")
    if not file.exists():
        close = _close_files(file)
        raise ConfigError(
            f"there is no config file '{file}'"
            + (f"; did you mean {' or '.join(close)}?" if close else "; a shipped one: -e cartpole -p dqn")
        )
    return file


def _close_files(file: Path) -> list[str]:
    """Return existing config files with a name like that of a missing one, beside it and among the shipped ones."""
    beside = {entry.name: str(entry) for entry in file.parent.glob("*.py")}
    spec = importlib.util.find_spec("dizoo")
    roots = list(spec.submodule_search_locations or ()) if spec else []
    shipped = {entry.name: os.path.relpath(entry) for root in roots for entry in Path(root).rglob("*_config.py")}
    files = shipped | beside
    return [files[name] for name in difflib.get_close_matches(file.name, files, n=2)]


def _create_config_for(main: object) -> str:
    """Return the create_config that a main_config may go with, as Python."""
    has_id = isinstance(main, Mapping) and isinstance(main.get("env"), Mapping) and "env_id" in main["env"]
    return f"dict(env=dict(type={'gymnasium' if has_id else '...'!r}), policy=dict(type='dqn'))"


def _hint(module: ModuleType, name: str) -> str:
    if name == "create_config":
        main = getattr(module, "main_config", None)
        return f"add `{name} = {_create_config_for(main)}`"
    dicts = [key for key, value in vars(module).items() if isinstance(value, Mapping) and not key.startswith("_")]
    close = difflib.get_close_matches(name, dicts, n=1, cutoff=0.4)
    return f"is it '{close[0]}'? Add `{name} = {close[0]}`" if close else f"add `{name} = dict(...)`"
