"""Let every process of a run know what a config file registers, and find the modules that lie beside it.

A worker, an env's process and a resumed run read the compiled config and not the user's file. So the file's path, or
its folder, joins the `import_names` of those parts that need it.
"""

from __future__ import annotations

import functools
import importlib.metadata
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from ding_like.config.parts import OTHER_SECTIONS, PARTS
from ding_like.config.tree import Tree, get_path, to_plain
from ding_like.utils.imports import run_file
from ding_like.utils.registries import REGISTRIES

# Registry -> section of create_config that imports its classes, where it is not the part of the same registry.
_SECTIONS = {"env_wrapper": "env", "model": "policy", "learner_hook": "learner", "player": "league"}
_SECTIONS |= {part.registry.name: part.name for part in PARTS}
_SECTIONS |= {"parallel_collector": "collector"} | {name: name for name in OTHER_SECTIONS}
_OWN = ("ding_like", "gymnasium")  # packages that every process imports by itself

# File -> sections for which it registers something: what it imports registers at its first run only.
_sections_of: dict[Path, set[str]] = {}
_ids_of: dict[Path, set[str]] = {}


def run_config(file: Path) -> tuple[ModuleType, set[str]]:
    """Run a config file; return its module and the sections of create_config for which it registers something."""
    path = file.resolve()
    envs = _gymnasium_envs()
    for env_id in _ids_of.get(path, ()):  # gymnasium warns of an id that is registered again
        envs.pop(env_id, None)
    before = _registered()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Overriding environment")
        module = run_file(file)
    new = {key for key, found in _registered().items() if before.get(key) is not found and not _is_known(found)}
    _ids_of.setdefault(path, set()).update(name for registry, name in new if registry == "gymnasium")
    sections = _sections_of.setdefault(path, set())
    sections.update("env" if registry == "gymnasium" else _SECTIONS[registry] for registry, _ in new)
    return module, sections


def with_own_code(main: Any, create: Any, file: Path, sections: Iterable[str]) -> Any:
    """Return create_config with the file among the `import_names` of `sections`.

    The file's folder joins those of parts that name a module which lies in it. The inputs may be anything that a file
    can hold, and are not changed.
    """
    if not isinstance(main, Mapping) or not isinstance(create, Mapping):
        return create
    path = file.resolve()
    added: Tree = {}
    for name in dict.fromkeys([*(part.name for part in PARTS), *sections]):
        section = create.get(name, {})
        if not isinstance(section, Mapping):
            continue
        in_main = get_path(main, next((part.path for part in PARTS if part.name == name), name), {})
        in_main = in_main if isinstance(in_main, Mapping) else {}
        given = section.get("import_names", in_main.get("import_names", []))
        given = [given] if isinstance(given, str) else given
        if not isinstance(given, (list, tuple)):
            continue
        own = [_absolute(each, path.parent) for each in given]
        if any(_lies_in(module, path.parent) for module in _named_modules(name, section, in_main, own)):
            own.insert(0, str(path.parent))
        if name in sections and str(path) not in own:
            own.insert(0, str(path))
        if own != list(given):
            added[name] = {**section, "import_names": list(dict.fromkeys(own))}
    return {**to_plain(create), **to_plain(added)} if added else create


def _named_modules(part: str, section: Mapping[str, Any], in_main: Mapping[str, Any], own: list[Any]) -> Iterator[str]:
    """Yield the modules that a part names: its import_names, and before the colon of "module:Class" and "module:Id"."""
    named = [section.get("type"), in_main.get("type")]
    if part == "env":
        wrappers = in_main.get("wrappers")
        named += [section.get("env_id"), in_main.get("env_id")]
        if isinstance(wrappers, (list, tuple)):
            named += [each.get("type") if isinstance(each, Mapping) else each for each in wrappers]
    if part == "policy" and isinstance(model := in_main.get("model"), Mapping):
        names = model.get("import_names", [])
        yield from (each for each in ([names] if isinstance(names, str) else names) if isinstance(each, str))
        named.append(model.get("type"))
    yield from (each for each in own if isinstance(each, str))
    yield from (each.partition(":")[0] for each in named if isinstance(each, str) and ":" in each)


def _absolute(name: Any, folder: Path) -> Any:
    """Return the path of a Python file that lies beside the config; any other name as it is."""
    is_beside = isinstance(name, str) and name.endswith(".py") and (folder / name).is_file()
    return str(folder / name) if is_beside else name


def _lies_in(module: str, folder: Path) -> bool:
    top = module.partition(".")[0]
    return top.isidentifier() and ((folder / f"{top}.py").is_file() or (folder / top / "__init__.py").is_file())


def _gymnasium_envs() -> dict[str, Any]:
    """Return gymnasium's registry, empty while nobody has imported gymnasium: reading a config needs no env."""
    gymnasium = sys.modules.get("gymnasium")
    return {} if gymnasium is None else gymnasium.registry


def _registered() -> dict[tuple[str, str], Any]:
    own = {(name, key): cls for name, each in REGISTRIES.items() for key, cls in each.registered().items()}
    return {**own, **{("gymnasium", env_id): spec for env_id, spec in _gymnasium_envs().items()}}


def _is_known(found: Any) -> bool:
    """Tell whether every process knows a class or a gymnasium spec without the file: ours, gymnasium's, a plug-in's."""
    entry = getattr(found, "entry_point", found)
    module = entry if isinstance(entry, str) else getattr(entry, "__module__", "")
    return module.partition(":")[0].partition(".")[0] in {*_OWN, *_plugins()}


@functools.cache
def _plugins() -> set[str]:
    """Return the packages that gymnasium imports by itself."""
    return {point.module.partition(".")[0] for point in importlib.metadata.entry_points(group="gymnasium.envs")}
