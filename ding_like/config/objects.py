"""Classes and activation layers in a config, written as text by their import path, and made again from it.

A config file may say `activation=nn.Tanh()` or `activation=nn.Tanh`. A compiled config is plain, so that it can be
saved and compared: it says "import:torch.nn.Tanh()" or "import:torch.nn.Tanh", and the policy makes the object of that
when it builds its model.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Mapping
from typing import Any

from ding_like.config.tree import Tree, items, literal
from ding_like.errors import ConfigError
from ding_like.types import Config

_PREFIX = "import:"
_NO_VALUE = object()


def is_object(value: object) -> bool:
    """Return whether a value is a class, a function, or a layer of torch."""
    return isinstance(value, type) or inspect.isroutine(value) or _is_layer(value)


def is_object_text(value: object) -> bool:
    """Return whether a value is the text of an object."""
    return isinstance(value, str) and value.startswith(_PREFIX)


def object_text(value: object) -> str:
    """Return the text of a class, function or layer, which `with_objects` reads.

    Raises ConfigError if nothing that can be imported is like it.
    """
    if _is_layer(value):
        return f"{_PREFIX}{_import_path(type(value))}({_arguments(value)})"
    return _PREFIX + _import_path(value)


def with_objects(section: Config) -> Tree:
    """Return a section of a compiled config with objects in place of their texts.

    A text is called only where it names a layer, as a config may come from elsewhere; what it names alone is a class of
    layers or a function of torch. Raises ConfigError for anything else, and for what cannot be imported.
    """
    return {key: _loaded(value) for key, value in items(section)}


def _loaded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return type(value)(with_objects(value)) if isinstance(value, dict) else with_objects(value)
    if type(value) in (list, tuple):
        return type(value)(_loaded(item) for item in value)
    return _load(value) if is_object_text(value) else value


def _load(text: str) -> Any:
    try:
        node = ast.parse(text.removeprefix(_PREFIX), mode="eval").body
        if not isinstance(node, ast.Call):
            return _checked(_find(ast.unparse(node)), is_called=False)
        if node.args:
            raise ValueError("arguments are given by name")
        arguments = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
        return _checked(_find(ast.unparse(node.func)), is_called=True)(**arguments)
    except (SyntaxError, ValueError, TypeError, ImportError, AttributeError) as error:
        raise ConfigError(
            f"'{text}' cannot be made: {error}; it is an import path, as in {_PREFIX}torch.nn.Tanh()."
        ) from (error)


def _find(path: str) -> Any:
    """Return what an import path names. Raises ImportError or AttributeError."""
    module, _, name = path.rpartition(".")
    if not module:
        raise ImportError("an import path has a module and a name in it")
    return getattr(importlib.import_module(module), name)


def _checked(found: Any, *, is_called: bool) -> Any:
    """Return what a text names if a model may be made of it. Raises ValueError otherwise."""
    from torch import nn  # only where a text names something: reading a config needs no torch

    if isinstance(found, type) and issubclass(found, nn.Module):
        return found
    module = str(getattr(found, "__module__", "") or "")
    if not is_called and inspect.isroutine(found) and module.split(".")[0] == "torch":
        return found
    raise ValueError(f"{found!r} is no layer of torch" + ("" if is_called else ", and none of its functions"))


def _is_layer(value: object) -> bool:
    torch = sys.modules.get("torch")  # without it there is no layer; reading a config does not import it
    return torch is not None and isinstance(value, torch.nn.Module)


def _import_path(value: Any) -> str:
    """Return the shortest import path of a class or function."""
    module, name = str(getattr(value, "__module__", None)), str(getattr(value, "__qualname__", ""))
    if module.startswith("config_file_"):
        raise ConfigError(
            f"'{name}' is defined in the config file itself, and a saved config could not find it: move it to a module "
            "beside the file and import it from there."
        )
    parts = module.split(".")
    packages = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
    for package in packages:
        if name and getattr(sys.modules.get(package), name, None) is value:
            return f"{package}.{name}"
    raise ConfigError(f"{value!r} has no import path, and cannot be saved: give it a name at the top of a module.")


def _arguments(layer: Any) -> str:
    """Return the arguments, in Python, by which a layer like this one is made."""
    if next(iter(layer.parameters()), None) is not None:
        raise ConfigError(
            f"{type(layer).__name__} has weights, which a config cannot hold: give its class, or a model of your own."
        )
    changed = {}
    for name, parameter in inspect.signature(type(layer).__init__).parameters.items():
        value = getattr(layer, name, _NO_VALUE)
        if value is not _NO_VALUE and name != "self" and value != parameter.default:
            changed[name] = value
    text = ", ".join(f"{name}={literal(value)}" for name, value in changed.items())
    try:
        again = type(layer)(**{name: ast.literal_eval(literal(value)) for name, value in changed.items()})
    except (TypeError, ValueError, SyntaxError) as error:
        raise ConfigError(f"{layer!r} cannot be saved: {error}; give its class, or a model of your own.") from error
    if repr(again) != repr(layer):
        raise ConfigError(f"{layer!r} cannot be saved with its settings: give its class, or a model of your own.")
    return text
