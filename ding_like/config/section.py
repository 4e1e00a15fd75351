"""Check a section of a config that is no class's: its keys, their types, and what its numbers may be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ding_like.config.check import Checker
from ding_like.config.literal import literal
from ding_like.config.override import Override
from ding_like.config.report import Fault
from ding_like.config.schema import Schema
from ding_like.config.tree import Tree, deep_merge, get_path, join, set_path


class Rule(NamedTuple):
    """Say what a value may be: a word for the error, and the test."""

    allowed: str
    holds: Callable[[Any], bool]


class Section(NamedTuple):
    """Describe a section that lies at `path`; the paths of its keys are below it."""

    path: str
    defaults: Mapping[str, Any]
    types: Mapping[str, tuple[type, ...]] = {}  # of keys whose default is None, or which take several types
    rules: Mapping[str, Rule] = {}
    free: Iterable[str] = ()  # sections that take any key


def check_section(
    section: Section, given: Mapping[str, Any], overrides: Mapping[str, Override] | None = None
) -> tuple[Tree, list[Fault]]:
    """Return (the section with its defaults filled in, every fault of what was given).

    `overrides` are those of the command line, by full path. The default stands in place of a value with a fault, so
    that the rest can be looked at too.
    """
    root = section.path
    schema = Schema(types={join(root, path): types for path, types in section.types.items()})
    set_path(schema.defaults, root, dict(section.defaults))
    schema.free.update(join(root, path) for path in section.free)
    user: Tree = {}
    set_path(user, root, given)
    # The section stays a plain dict, so that no key hides a method.
    checker = Checker(schema, {path: override.raw for path, override in (overrides or {}).items()}, reserved=())
    values, faults = deep_merge(section.defaults, get_path(checker.check(user), root, {})), list(checker.faults)
    for path, rule in section.rules.items():
        value = get_path(values, path)
        if not rule.holds(value):
            faults.append(Fault(join(root, path), f"is {literal(value)}; give {rule.allowed}"))
            set_path(values, path, get_path(section.defaults, path))
    return values, faults
