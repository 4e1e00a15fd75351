"""Base of a learner's hooks, how a config builds and orders them; those that are shipped are in `learner.py`."""

from __future__ import annotations

import bisect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from ding_like.errors import ConfigError, RegistryError
from ding_like.types import Config
from ding_like.utils.registries import LEARNER_HOOK_REGISTRY
from ding_like.worker.commander import Weights

POSITIONS = ("before_run", "after_run", "before_iter", "after_iter")

_by_priority = attrgetter("priority")


class Hook(ABC):
    """DI-engine's root of all hooks: a name and a priority."""

    def __init__(self, name: str, priority: float = 100, *, ext_args: Config | None = None) -> None:
        if priority < 0:
            raise ConfigError(f"hook '{name}' has priority {priority}; give a number from 0 (first) upwards.")
        self.name, self.priority = name, priority
        self.ext_args = dict(ext_args or {})

    @abstractmethod
    def __call__(self, engine: Any) -> Any:
        """Run the hook on `engine`, the part that it belongs to."""


class LearnerHook(Hook):
    """Hook at one position of a learner, which is the `engine` of the call.

    `default_priority` is what the short form of the config (`<type>_<position>: value`) gives a hook.
    """

    default_priority: float = 100

    def __init__(self, *args: Any, position: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if position not in POSITIONS:
            raise ConfigError(f"hook '{self.name}' has position '{position}'; choose one of {', '.join(POSITIONS)}.")
        self.position = position

    @classmethod
    def ext_args_of(cls, value: object) -> Weights | None:
        """Read the value of the short form: True is on, a number is a frequency; return None to leave the hook out."""
        if isinstance(value, bool):
            return {} if value else None
        if isinstance(value, (int, float)):
            return {"freq": int(value)}
        raise ConfigError(f"{cls.__name__} cannot be set by {value!r}; give a number of iterations, True or False.")


class PeriodicHook(LearnerHook):
    """Hook that runs every `freq` iterations, where `last_iter % freq == 0`."""

    def __init__(self, name: str, priority: float = 100, *, position: str, ext_args: Config | None = None) -> None:
        super().__init__(name, priority, position=position, ext_args=ext_args)
        self._freq = int(self.ext_args.get("freq", 1))
        if self._freq < 1:
            raise ConfigError(f"hook '{self.name}' has frequency {self._freq}; give a number of iterations from 1.")


def register_learner_hook(name: str, hook_type: type[LearnerHook]) -> None:
    """Make `hook_type` buildable by `name` from a config. Raises RegistryError if it is no LearnerHook class."""
    if not (isinstance(hook_type, type) and issubclass(hook_type, LearnerHook)):
        raise RegistryError(f"hook '{name}' is {hook_type!r}; register a subclass of LearnerHook.")
    LEARNER_HOOK_REGISTRY.register(name)(hook_type)


def add_learner_hook(hooks: dict[str, list[LearnerHook]], hook: LearnerHook) -> None:
    """Insert a hook at its position, after those of equal priority; changes `hooks`."""
    bisect.insort_right(hooks[hook.position], hook, key=_by_priority)


def merge_hooks(
    hooks1: Mapping[str, list[LearnerHook]], hooks2: Mapping[str, list[LearnerHook]]
) -> dict[str, list[LearnerHook]]:
    """Join two dicts of hooks by position into a new one; equal priorities keep their order, `hooks1` first."""
    if hooks1.keys() != hooks2.keys():
        raise ConfigError(f"hooks differ in their positions: {sorted(hooks1)} and {sorted(hooks2)}.")
    return {position: sorted([*hooks1[position], *hooks2[position]], key=_by_priority) for position in hooks1}


def show_hooks(hooks: Mapping[str, list[LearnerHook]]) -> str:
    """Return a table of hooks, a line for each: its position, its name and its priority, in the order they run in."""
    rows = [(position, hook.name, f"{hook.priority:g}") for position, each in hooks.items() for hook in each]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def build_learner_hook_by_cfg(cfg: Config) -> dict[str, list[LearnerHook]]:
    """Build hooks from `{'hook': {...}}` or from the inner dict, by position and in order of priority.

    An entry is either short, `<type>_<position>: value` (`save_ckpt_after_iter: 1000`), or full, `<any key>: {type,
    position, priority=100, name, ext_args}`.
    """
    hooks: dict[str, list[LearnerHook]] = {position: [] for position in POSITIONS}
    for key, value in cfg.get("hook", cfg).items():
        hook = _full_form(key, value) if isinstance(value, Mapping) else _short_form(key, value)
        if hook is not None:
            add_learner_hook(hooks, hook)
    return hooks


def _full_form(key: str, value: Mapping[str, Any]) -> LearnerHook:
    missing = [name for name in ("type", "position") if name not in value]
    if missing:
        raise ConfigError(f"hook '{key}' lacks {' and '.join(missing)}; give type, position, priority and ext_args.")
    settings = {name: item for name, item in value.items() if name not in ("type", "name", "priority")}
    return _build(value["type"], value.get("name", key), value.get("priority", 100), **settings)


def _short_form(key: str, value: object) -> LearnerHook | None:
    hook_type, _, when = key.rpartition("_")
    hook_type, _, side = hook_type.rpartition("_")
    position = f"{side}_{when}"
    if not hook_type or position not in POSITIONS:
        raise ConfigError(f"hook '{key}' names no position; end it in one of {', '.join('_' + p for p in POSITIONS)}.")
    cls = LEARNER_HOOK_REGISTRY.get(hook_type)
    ext_args = cls.ext_args_of(value)
    if ext_args is None:
        return None
    return _build(hook_type, key, cls.default_priority, position=position, ext_args=ext_args)


def _build(hook_type: str, name: str, priority: float, **settings: Any) -> LearnerHook:
    hook: LearnerHook = LEARNER_HOOK_REGISTRY.build(hook_type, name, priority, **settings)
    return hook
