"""Sections of a `system_config`: a dataclass declares the keys of each, with their defaults, types and rules.

`workers: Annotated[int, FROM_0] = 2` is a key that takes whole numbers from 0. A `Literal` takes its values, a field
that holds a dataclass is a section, and one that holds an empty dict is a section that takes any key.
"""

from __future__ import annotations

import math
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from ding_like.config.read import Override
from ding_like.config.report import Fault, config_error
from ding_like.config.schema import Checker, Schema
from ding_like.config.tree import Tree, deep_merge, get_path, join, leaves, literal, set_path
from ding_like.errors import ConfigError, RegistryError
from ding_like.types import Config
from ding_like.utils.registries import Registry

T = TypeVar("T")


class Rule(NamedTuple):
    """Values that a key takes: in words, and as a test of what is not None."""

    allowed: str
    holds: Callable[[Any], bool]


FROM_0 = Rule("0 or more", lambda it: it >= 0)
FROM_1 = Rule("1 or more", lambda it: it >= 1)
FRACTION = Rule("a number above 0 and at most 1", lambda it: 0 < it <= 1)
AMOUNT = Rule("a number from 0", lambda it: 0 <= it < math.inf)
SECONDS = Rule("seconds above 0", lambda it: 0 < it < math.inf)
SECONDS_FROM_0 = Rule("seconds, 0 or more", lambda it: 0 <= it < math.inf)
UPDATES = Rule("None for no limit, or 0 or more updates", lambda it: it >= 0)
DEVICE = Rule("'cpu', 'cuda' or 'cuda:0'", lambda it: re.fullmatch(r"cpu|cuda(:\d+)?", str(it)) is not None)


def check_section(
    kind: type[object], path: str, given: Tree, overrides: Mapping[str, Override] | None = None
) -> tuple[Tree, list[Fault]]:
    """Return (the section at `path` with the defaults of a dataclass filled in, every fault of what was given).

    `overrides` are those of the command line, by full path. The default stands in place of a value with a fault, so
    that the rest can be checked too.
    """
    defaults, schema, rules = _defaults(kind), Schema(), dict[str, Rule]()
    _declare(kind, path, schema, rules)
    user: Tree = {}
    if path:
        set_path(schema.defaults, path, defaults)
        set_path(user, path, given)
    else:
        schema.defaults, user = defaults, given
    # The section stays a plain dict, so that no key hides a method.
    checker = Checker(schema, {name: override.raw for name, override in (overrides or {}).items()}, reserved=())
    values = deep_merge(schema.defaults, checker.check(user))
    faults = list(checker.faults)
    for name, rule in rules.items():
        value = get_path(values, name)
        if value is not None and not rule.holds(value):
            faults.append(Fault(name, f"is {literal(value)}; give {rule.allowed}"))
            set_path(values, name, get_path(schema.defaults, name))
    return get_path(values, path), faults


def check_mode(
    kind: type[object], system: Config, mode: str, overrides: Mapping[str, Override] | None
) -> tuple[Tree, list[Fault]]:
    """Return (the section of a `system_config` that one mode reads, its faults and the sections of other modes)."""
    values, faults = check_section(kind, f"system.{mode}", system.get(mode) or {}, overrides)
    text = f"is not of mode {mode}, which reads system.{mode} alone: leave it out"
    return values, faults + [Fault(f"system.{key}", text) for key in system if key != mode]


def without_effect(
    path: str, values: Tree, defaults: Tree, idle: Iterable[tuple[tuple[str, ...], str]]
) -> Iterator[Fault]:
    """Yield the keys that were set although they change nothing; `idle` yields (keys or sections, why)."""
    reasons = list(idle)
    for name, value in leaves(values):
        found = (why for keys, why in reasons if any(f"{name}.".startswith(f"{key}.") for key in keys))
        if value != get_path(defaults, name) and (reason := next(found, "")):
            yield Fault(join(path, name), f"is {literal(value)}, which changes nothing: {reason}")


def settings_of(
    kind: type[T],
    values: Tree,
    faults: Iterable[Fault] = (),
    *,
    source: str = "the config",
    overrides: Mapping[str, Override] | None = None,
) -> T:
    """Return the dataclass with these values, sections and all. Raises ConfigError with the faults if there are any."""
    if faults := list(faults):
        raise config_error(faults, source, {path: each.text for path, each in (overrides or {}).items()})
    nested = {name: type(default) for name, default in _fields(kind) if is_dataclass(default)}
    return kind(**{**values, **{name: settings_of(each, values[name]) for name, each in nested.items()}})


def subclass_at(path: str, name: str | None, base: type[T]) -> type[T]:
    """Return the class that the setting at a path names as "module:Class"; `base` without a name.

    Raises ConfigError for one that is not derived from `base`.
    """
    if name is None:
        return base
    registry: Registry[Any] = Registry(path.split(".")[-2], base.__module__)
    try:
        found = registry.get(name)
    except RegistryError as error:
        raise ConfigError(f"{path}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ConfigError(
            f"{path} is '{name}', which is no subclass of {base.__name__}: derive it from "
            f"{base.__module__}.{base.__name__}."
        )
    return found


def _fields(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """Yield (name, default) of the fields of a dataclass."""
    for field in fields(kind):
        yield field.name, field.default if field.default_factory is MISSING else field.default_factory()


def _defaults(kind: type[Any]) -> Tree:
    return {name: asdict(it) if is_dataclass(it) else it for name, it in _fields(kind)}  # type: ignore[arg-type]


def _declare(kind: type[Any], path: str, schema: Schema, rules: dict[str, Rule]) -> None:
    """Add the types and the rules of a dataclass by what annotates its fields."""
    hints = get_type_hints(kind, include_extras=True)
    for name, default in _fields(kind):
        here, hint = join(path, name), hints[name]
        if is_dataclass(default):
            _declare(type(default), here, schema, rules)
        elif isinstance(default, Mapping):
            if not default:
                schema.free.add(here)
            schema.types.update((join(here, key), (str,)) for key, value in default.items() if value is None)
        else:
            if get_origin(hint) is Annotated:
                hint, rules[here] = get_args(hint)
            alternatives = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
            choices = [each for it in alternatives if get_origin(it) is Literal for each in get_args(it)]
            if choices:
                rules[here] = Rule(" or ".join(map(repr, choices)), choices.__contains__)
            known = [get_origin(it) or it for it in alternatives if it is not type(None)]
            schema.types[here] = tuple(dict.fromkeys([*(it for it in known if it is not Literal), *map(type, choices)]))
