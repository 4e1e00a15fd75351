"""What a class declares of its config section: defaults that it inherits, and faults that follow from declarations."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any

from easydict import EasyDict

from ding_like.config.report import NoEffect
from ding_like.config.tree import deep_merge, get_path
from ding_like.types import Config
from ding_like.utils.bounds import declared


def inherited_config(cls: type[Any]) -> EasyDict:
    """Return a copy of the defaults in `config` of a class and its base classes; `cfg_type` names the class."""
    merged: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        merged = deep_merge(merged, copy.deepcopy(base.__dict__.get("config", {})))
    return EasyDict(merged, cfg_type=f"{cls.__name__}Dict")


def declared_faults(cls: type[Any], cfg: Config) -> Iterator[tuple[str, str]]:
    """Yield (path, message) for each setting against `config_choices`, `_fixed`, `_unused` and `_idle` of a class.

    `cls` has `default_config`.
    """
    for path, allowed in declared(cls, "config_choices").items():
        if (value := get_path(cfg, path)) not in allowed:
            *first, last = map(repr, allowed)
            yield path, f"must be {', '.join(first)} or {last}, got {value!r}"
    for path, (only, why) in declared(cls, "config_fixed").items():
        if (value := get_path(cfg, path)) != only:
            yield path, f"must be {only!r}, got {value!r}: {why}"
    for path, why in declared(cls, "config_unused").items():
        yield from without_effect(cls, cfg, (path,), why)
    for path, (value, idle) in declared(cls, "config_idle").items():
        if get_path(cfg, path) == value:
            yield from without_effect(cls, cfg, idle, f"{path} is {value!r}")


def without_effect(cls: type[Any], cfg: Config, paths: Iterable[str], why: str) -> Iterator[tuple[str, str]]:
    """Yield (path, message) for those keys, without effect in this config, that it changes from a class's defaults."""
    defaults = cls.default_config()
    for path in paths:
        if (value := get_path(cfg, path)) != (default := get_path(defaults, path)):
            yield NoEffect(path, f"is {value!r}, but has no effect, as {why}; leave it out (default: {default!r})")
