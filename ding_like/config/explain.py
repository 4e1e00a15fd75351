"""Read what each key of a config means: the comment beside its default, in the class that has it.

`ding explain` and docs/settings.md show it. The comment lines right above a key count, or the one behind it; those of
base classes hold too, so that a key which many classes have is explained once.
"""

from __future__ import annotations

import ast
import functools
import inspect
import io
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple

from ding_like.config.di_engine import COMMANDER
from ding_like.config.report import dict_entries
from ding_like.config.schema import PARTS, TOP_BOUNDS, TOP_TEMPLATE, TOP_TYPES, Part, Schema
from ding_like.config.tree import get_path, join, leaves, literal, set_path, to_plain
from ding_like.utils import registries
from ding_like.utils.registries import Registry

_COMMANDER = Part("commander", "policy.other.commander", registries.COMMANDER_REGISTRY, "naive")
# Registries of which each type has a section of its own, under its name.
_NAMED_PARTS = (
    ("player", "policy.other.league", registries.PLAYER_REGISTRY),
    ("tracker", "trackers", registries.TRACKER_REGISTRY),
)
_TEMPLATES = {"": "TOP_TEMPLATE", "env": "ENV_TEMPLATE"}  # dicts of schema.py, with comments
_SCHEMA = sys.modules[Schema.__module__]


class Setting(NamedTuple):
    """Key of a registered type: its path in a config, its default, what it accepts, and what it means."""

    part: str  # "policy"; "" for a key of no class
    type_name: str  # "dqn"
    path: str
    default: Any
    accepts: str
    meaning: str  # "" where the default has no comment


class Explained(NamedTuple):
    """Key of a config, with each text mapped to the types that it holds for, the commonest first."""

    path: str
    part: str
    of: list[str]  # the types that have it
    defaults: dict[str, list[str]]
    accepts: dict[str, list[str]]
    meanings: dict[str, list[str]]


def explain(settings: Iterable[Setting]) -> list[Explained]:
    """Return one entry for each key of these settings."""
    by_path: dict[str, list[Setting]] = {}
    for setting in settings:
        by_path.setdefault(setting.path, []).append(setting)
    return [_explained(path, rows) for path, rows in by_path.items()]


def _explained(path: str, rows: list[Setting]) -> Explained:
    own = [row for row in rows if row.part != "policy"] or rows  # a policy has other defaults for keys of its parts

    def texts(field: str, rows: list[Setting]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for row in rows:
            name = row.type_name if row.part == own[0].part else f"{row.part} {row.type_name}"
            text = literal(row.default) if field == "default" else getattr(row, field)
            found.setdefault(text, []).append(name)
        return dict(sorted(found.items(), key=lambda item: -len(item[1])))

    of = [row.type_name for row in own]
    return Explained(path, own[0].part, of, texts("default", rows), texts("accepts", own), texts("meaning", own))


def all_settings(policy: str | None = None) -> list[Setting]:
    """Return the settings of all types of this package, or those that a run of one policy may have.

    `policy` is a registered name or an import path, module:Class. Raises RegistryError if there is none.
    """
    found = list(_run_settings())
    for part in (*PARTS, _COMMANDER):
        names = [policy] if policy is not None and part.name == "policy" else _shipped(part.registry)
        for name in names:
            found += _settings(part, part.registry.canonical(name), part.registry.get(name))
    for kind, path, registry in _NAMED_PARTS:
        for name in _shipped(registry):
            found += _settings(Part(kind, f"{path}.{name}", registry), name, registry.get(name))
    owners = {setting.path: setting for setting in reversed(found) if setting.part != "policy"}
    sections = {setting.path[:end] for setting in found for end, at in enumerate(setting.path) if at == "."}
    # An empty section is no key.
    found = [each for each in found if each.default != {} or each.meaning or each.path not in sections]
    for at, setting in enumerate(found):  # a policy's, completed by what its buffer or collector documents for the key
        if setting.part == "policy" and (owner := owners.get(setting.path)) is not None:
            found[at] = setting._replace(accepts=owner.accepts, meaning=setting.meaning or owner.meaning)
    return found


def _shipped(registry: Registry[Any]) -> list[str]:
    return [name for name in registry.names() if registry.get(name).__module__.startswith("ding_like.")]


def _run_settings() -> Iterator[Setting]:
    """Yield the settings of a run, which are no class's."""
    schema = Schema(defaults=to_plain(TOP_TEMPLATE), types=dict(TOP_TYPES), bounds=dict(TOP_BOUNDS))
    meanings = dict(_named(_SCHEMA, _TEMPLATES[""], ""))
    for path, default in leaves(schema.defaults):
        yield Setting("", "", path, default, _accepts(schema, path, default), meanings.get(path, ""))


def _settings(part: Part, name: str, cls: type[Any]) -> Iterator[Setting]:
    """Yield the settings of one class."""
    schema = Schema()
    schema.mount(part, cls)
    for section in getattr(cls, "collector_config", {}).values():  # what a policy changes of its collector
        for key, value in section.items():
            set_path(schema.defaults, f"policy.collect.collector.{key}", value)
    meanings = {join(part.path, path): text for path, text in _comments(cls)}
    if part.name in _TEMPLATES:
        meanings = {join(part.path, path): text for path, text in _named(_SCHEMA, _TEMPLATES[part.name], "")} | meanings
    meanings |= {path: f"No effect: {reason}." for path, reason in {**schema.without_effect, **COMMANDER}.items()}
    rows = {path: value for path, value in leaves(schema.defaults) if path != part.path}
    rows |= {path: get_path(schema.defaults, path, {}) for path in schema.free if path != part.path}  # take any key
    if part.name != "player":
        kind, modules = f"{part.path}.type", f"{part.path}.import_names"
        rows |= {path: None for path in schema.types if path not in rows} | {kind: part.default_type, modules: []}
        meanings[kind] = f"Class: a name that `ding -q {part.registry.name}` lists, or module:Class."
        if part.choose_default is not None:
            meanings[kind] += " Not given: 'advanced' with policy.priority or one of its own keys."
        meanings[modules] = "Modules to import first, which register the class."
    for path, default in rows.items():
        yield Setting(part.name, name, path, default, _accepts(schema, path, default), meanings.get(path, ""))


def _accepts(schema: Schema, path: str, default: Any) -> str:
    """Return which values a key takes, as far as its class declares it."""
    types = schema.types.get(path) or (() if default is None else (type(default),))
    text = " or ".join(type_.__name__ for type_ in types if type_ is not type(None)) or "any"
    if path in schema.bounds:
        text += f": {schema.bounds[path]}"
    is_optional = default is None or any(path in paths for paths in schema.alternatives)
    return f"{text}, or None" if is_optional else text


# ---- comments beside defaults


def _comments(cls: type[Any]) -> Iterator[tuple[str, str]]:
    """Yield (path, comment) of a class's `config`; comments of a sub-class come after those of its bases."""
    for base in reversed(getattr(cls, "__mro__", (cls,))):  # a registry may hold functions
        module = sys.modules[base.__module__]
        if "config" in vars(base):
            for node in _source(module).tree.body:
                if isinstance(node, ast.ClassDef) and node.name == base.__name__:
                    yield from _assigned(module, node.body, "config", "")


class _Source(NamedTuple):
    """Source code of a module."""

    tree: ast.Module
    lines: list[str]
    comments: Mapping[int, str]  # by line
    imports: Mapping[str, str]  # name -> the module that it is imported from


@functools.cache
def _source(module: ModuleType) -> _Source:
    text = inspect.getsource(module)
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    tree = ast.parse(text)
    froms = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    imports = {alias.asname or alias.name: str(node.module) for node in froms for alias in node.names}
    return _Source(tree, text.splitlines(), comments, imports)


def _named(module: ModuleType, name: str, path: str) -> Iterator[tuple[str, str]]:
    """Yield (path, comment) of a dict that is a constant of a module, or that the module imports."""
    source = _source(module)
    if name in source.imports:
        yield from _named(sys.modules[source.imports[name]], name, path)
    else:
        yield from _assigned(module, source.tree.body, name, path)


def _assigned(module: ModuleType, body: list[ast.stmt], name: str, path: str) -> Iterator[tuple[str, str]]:
    for node in body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                yield from _entries(module, node.value, path)


def _entries(module: ModuleType, node: ast.expr, path: str) -> Iterator[tuple[str, str]]:
    """Yield (path, comment) of the keys of a dict expression at `path`."""
    if isinstance(node, ast.Name):
        yield from _named(module, node.id, path)
    elif isinstance(node, ast.Attribute) and node.attr == "config":
        own = _comments(getattr(module, ast.unparse(node.value)))
        yield from ((join(path, each), comment) for each, comment in own)
    for key, value, line in dict_entries(node):
        if key is not None and (comment := _comment(_source(module), key, line)):
            yield join(path, key), comment
        yield from _entries(module, value, path if key is None else join(path, key))


def _comment(source: _Source, key: str, line: int) -> str:
    """Return the comment of the key on a line as sentences; "" for one that is not the first on its line."""
    if not source.lines[line - 1].lstrip(" \"'").startswith(key):
        return ""
    above = line - 1
    while source.lines[above - 1].lstrip().startswith("#"):
        above -= 1
    text = " ".join(source.comments[number] for number in range(above + 1, line + 1) if number in source.comments)
    return text and text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")
