"""Nested dicts: walk, merge, copy, freeze, and write as Python; a path names a place: "policy.learn.batch_size"."""

from __future__ import annotations

import ast
import importlib
import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from easydict import EasyDict

from ding_like.errors import ConfigError
from ding_like.types import Config

_WIDTH = 100
_INDENT = "    "
# A config holds values of any plain type; Any stands for them throughout this package.
Tree = dict[str, Any]


def join(path: str, key: str) -> str:
    """Return the path of `key` below `path`; either may be empty."""
    return f"{path}.{key}" if path and key else path or key


def items(tree: Config) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a mapping, also of an EasyDict in which a key named `items` hides the method."""
    return iter(dict.items(tree) if isinstance(tree, dict) else tree.items())


def to_plain(value: Any, path: str = "", around: tuple[Any, ...] = ()) -> Any:
    """Return a deep copy in which every mapping is a dict and every list a list.

    `around` are the sections and lists around `path`. Raises ConfigError for a value that contains itself.
    """
    if not isinstance(value, (Mapping, list, tuple)):
        return value
    if any(value is each for each in around):
        raise ConfigError(f"{path} is a section or list that contains itself; leave it out, or give a copy: dict(...).")
    around = (*around, value)
    if isinstance(value, Mapping):
        return {key: to_plain(item, join(path, str(key)), around) for key, item in items(value)}
    plain = [to_plain(item, f"{path}[{number}]", around) for number, item in enumerate(value)]
    return plain if isinstance(value, list) else tuple(plain)


def deep_merge(default: Config, user: Config) -> Tree:
    """Return a new plain dict with the keys of both; where both have a value, `user` wins, and two dicts are merged."""
    merged = to_plain(default)
    for key, value in items(user):
        old = merged.get(key)
        both = isinstance(old, dict) and isinstance(value, Mapping)
        merged[key] = deep_merge(old, value) if both else to_plain(value)
    return merged  # type: ignore[no-any-return]


def get_path(tree: Config, path: str, default: Any = None) -> Any:
    """Return the value at a path, or `default` where there is none; the empty path is the tree itself."""
    value: Any = tree
    for key in path.split(".") if path else ():
        if not isinstance(value, Mapping) or key not in value:
            return default
        value = value[key]
    return value


def set_path(tree: Tree, path: str, value: object) -> None:
    """Put a value at a path, making the sections above it; a value in the place of a section is replaced."""
    *sections, last = path.split(".")
    for key in sections:
        if not isinstance(tree.get(key), dict):
            tree[key] = {}
        tree = tree[key]
    tree[last] = value


def leaves(tree: Config, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of everything that is not a section; an empty dict counts as a value."""
    for key, value in items(tree):
        if isinstance(value, Mapping) and value:
            yield from leaves(value, join(path, key))
        else:
            yield join(path, key), value


def literal(value: object) -> str:
    """Return a value as one line of Python; infinite floats and NaN as `float("inf")`."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{literal(key)}: {literal(item)}" for key, item in items(value)) + "}"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(map(literal, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
    return repr(value)


def block(tree: Config, comments: Mapping[str, str] | None = None, *, path: str = "", depth: int = 0) -> str:
    """Return nested dicts as indented Python, one key a line; `comments` maps a path to what its line ends with.

    Sections that fit in a line and carry no comment stay in one.
    """
    comments = comments or {}
    pad = _INDENT * (depth + 1)
    lines = ["{"]
    for key, value in items(tree):
        here = join(path, key)
        text = literal(value)
        is_long = len(pad) + len(text) > _WIDTH or any(name.startswith(f"{here}.") for name in comments)
        if isinstance(value, Mapping) and value and is_long:
            text = block(value, comments, path=here, depth=depth + 1)
        comment = f"  # {comments[here]}" if here in comments else ""
        lines.append(f"{pad}{literal(key)}: {text},{comment}")
    lines.append(_INDENT * depth + "}")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """Return a str in double quotes where that needs no more escapes than `repr`."""
    quoted = repr(text)
    return f'"{quoted[1:-1]}"' if quoted[0] == "'" and '"' not in text else quoted


def _refuse(name: str) -> Callable[..., NoReturn]:
    def refuse(self: object, *args: object, **kwargs: object) -> NoReturn:
        what = f" of {args[0]!r}" if args and isinstance(args[0], str) else ""
        raise ConfigError(
            f"the config is frozen, {name}{what} is refused; change the config file, give an override, "
            "or work on copy.deepcopy(cfg), which is mutable"
        )

    refuse.__name__ = name
    return refuse


class FrozenList(list[Any]):
    """List of a frozen config."""

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse("a change")
    append = extend = insert = pop = remove = clear = sort = reverse = _refuse("a change")

    def __deepcopy__(self, memo: object) -> list[Any]:
        thawed: list[Any] = EasyDict(value=to_plain(self)).value
        return thawed

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenList, (list(self),)


class FrozenConfig(EasyDict):  # type: ignore[misc]  # easydict has no annotations
    """EasyDict that refuses every change with ConfigError.

    `copy.deepcopy(cfg)` and `cfg.copy()` give a mutable EasyDict, `to_plain(cfg)` a plain dict. Pickling keeps it
    frozen.
    """

    def __init__(self, tree: Config | None = None) -> None:
        for key, value in items(tree or {}):
            frozen = _freeze(value)
            dict.__setitem__(self, key, frozen)
            object.__setattr__(self, key, frozen)

    __setattr__ = __setitem__ = _refuse("setting")
    __delattr__ = __delitem__ = _refuse("deletion")
    update = pop = popitem = setdefault = clear = __ior__ = _refuse("a change")

    def copy(self) -> EasyDict:
        """Return a mutable deep copy."""
        return EasyDict(to_plain(self))

    def __deepcopy__(self, memo: object) -> EasyDict:
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenConfig, (to_plain(self),)


def _freeze(value: Any) -> Any:
    if isinstance(value, Mapping):
        return FrozenConfig(value)
    if isinstance(value, list):
        return FrozenList(_freeze(item) for item in value)
    if isinstance(value, tuple):
        return tuple(_freeze(item) for item in value)
    return value


_PREFIX = "import:"


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
        call = node if isinstance(node, ast.Call) else None
        if call is not None and call.args:
            raise ValueError("arguments are given by name")
        module, _, name = ast.unparse(node if call is None else call.func).rpartition(".")
        if not module:
            raise ImportError("an import path has a module and a name in it")
        found = _checked(getattr(importlib.import_module(module), name), is_called=call is not None)
        if call is None:
            return found
        return found(**{str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords})
    except (SyntaxError, ValueError, TypeError, ImportError, AttributeError) as error:
        fix = f"it is an import path, as in {_PREFIX}torch.nn.Tanh()"
        raise ConfigError(f"'{text}' cannot be made: {error}; {fix}.") from error


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
    defaults = {name: each.default for name, each in inspect.signature(type(layer)).parameters.items()}
    values = {name: getattr(layer, name, default) for name, default in defaults.items()}
    changed = {name: value for name, value in values.items() if value != defaults[name]}
    text = ", ".join(f"{name}={literal(value)}" for name, value in changed.items())
    try:
        again = type(layer)(**{name: ast.literal_eval(literal(value)) for name, value in changed.items()})
    except (TypeError, ValueError, SyntaxError) as error:
        raise ConfigError(f"{layer!r} cannot be saved: {error}; give its class, or a model of your own.") from error
    if repr(again) != repr(layer):
        raise ConfigError(f"{layer!r} cannot be saved with its settings: give its class, or a model of your own.")
    return text
