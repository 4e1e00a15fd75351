"""Put stand-ins in the place of modules and names that the package's own modules have imported, and take them back."""

from __future__ import annotations

import importlib
import pkgutil
import random
import secrets
import sys
import threading
import time
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from tests.simulation.primitives import fake_random, fake_secrets, fake_threading, fake_time
from tests.simulation.scheduler import World

# Whose modules run on virtual time.
_PACKAGES = (
    "ding_like.comm",
    "ding_like.pipeline.collect",
    "ding_like.pipeline.components",
    "ding_like.pipeline.envs",
    "ding_like.pipeline.parallel",
    "ding_like.pipeline.record",
    "ding_like.pipeline.training_loop",
    "ding_like.utils",
    "ding_like.worker.commander",
)
# What others bring in, which is made for real processes.
_NOT = ("ding_like.pipeline.parallel.coordinator_run",)
_FACTORIES = {
    threading.Event: "Event",
    threading.Condition: "Condition",
    type(threading.Lock()): "Lock",
    type(threading.RLock()): "RLock",
}

_Missing = object()


class Patches:
    """Change attributes of modules and classes, and put all back in `undo`."""

    def __init__(self) -> None:
        self._old: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> Any:
        """Set an attribute; return what it was."""
        old = vars(owner).get(name, _Missing)
        self._old.append((owner, name, old))
        setattr(owner, name, value)
        return old

    def wrap(self, owner: type, name: str, make: Any) -> None:
        """Replace a method by `make(method)`."""
        self.set(owner, name, make(getattr(owner, name)))

    def undo(self) -> None:
        while self._old:
            owner, name, old = self._old.pop()
            if old is _Missing:
                delattr(owner, name)
            else:
                setattr(owner, name, old)


def modules() -> list[ModuleType]:
    """Return the modules that run on virtual time, all loaded: one that came later would have the real clock."""
    for package in _PACKAGES:
        loaded = importlib.import_module(package)
        for found in pkgutil.walk_packages(getattr(loaded, "__path__", ()), f"{package}."):
            if not found.name.startswith(_NOT):
                importlib.import_module(found.name)
    return [
        module
        for name, module in sorted(sys.modules.items())
        if name.startswith(_PACKAGES) and not name.startswith(_NOT) and module is not None
    ]


def put_on_virtual_time(patches: Patches, world: World) -> None:
    """Have the package's clocks, threads and random numbers be those of `world`."""
    fakes = {
        threading: fake_threading(world),
        time: fake_time(world),
        random: fake_random(world),
        secrets: fake_secrets(world),
    }
    clocks = {time.monotonic: world.monotonic, time.time: world.wall, time.perf_counter: world.monotonic}
    for module in modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, ModuleType) and value in fakes:
                patches.set(module, name, fakes[value])
            elif type(value) in _FACTORIES:
                patches.set(module, name, getattr(fakes[threading], _FACTORIES[type(value)])())
        for function in _functions(module):
            _patch_defaults(patches, function, clocks)


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    for value in list(vars(module).values()):
        if getattr(value, "__module__", None) != module.__name__:
            continue
        for each in [value, *vars(value).values()] if isinstance(value, type) else [value]:
            if isinstance(each, FunctionType):
                yield each


def _patch_defaults(patches: Patches, function: FunctionType, clocks: dict[Any, Any]) -> None:
    """Replace clocks that are defaults of arguments."""
    positional, by_name = function.__defaults__ or (), function.__kwdefaults__ or {}
    if any(_is_clock(each, clocks) for each in positional):
        _set_special(patches, function, "__defaults__", tuple(_clock(each, clocks) for each in positional))
    if any(_is_clock(each, clocks) for each in by_name.values()):
        _set_special(
            patches, function, "__kwdefaults__", {name: _clock(each, clocks) for name, each in by_name.items()}
        )


def _set_special(patches: Patches, function: FunctionType, name: str, value: Any) -> None:
    patches._old.append((function, name, getattr(function, name)))
    setattr(function, name, value)


def _is_clock(value: Any, clocks: dict[Any, Any]) -> bool:
    return callable(value) and any(value is each for each in clocks)


def _clock(value: Any, clocks: dict[Any, Any]) -> Any:
    return next((fake for real, fake in clocks.items() if value is real), value)


def replace_everywhere(patches: Patches, replacements: dict[Any, Any]) -> None:
    """Put stand-ins in the place of classes and functions wherever modules of the parallel run name them."""
    for module in modules():
        for name, value in list(vars(module).items()):
            for real, stand_in in replacements.items():
                if value is real:
                    patches.set(module, name, stand_in)
