"""Walk, merge and plain nested dicts; a path names a place in one: "policy.learn.batch_size"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ding_like.errors import ConfigError

# A config holds values of any plain type; Any stands for them throughout this package.
Tree = dict[str, Any]


def join(path: str, key: str) -> str:
    """Return the path of `key` below `path`; either may be empty."""
    return f"{path}.{key}" if path and key else path or key


def items(tree: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a mapping, also of an EasyDict in which a key named `items` hides the method."""
    return iter(dict.items(tree) if isinstance(tree, dict) else tree.items())


def to_plain(value: Any, path: str = "", around: tuple[Any, ...] = ()) -> Any:
    """Return a deep copy in which every mapping is a dict and every list a list.

    `around` are the sections and lists that `path` lies in. Raises ConfigError for a value that contains itself.
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


def deep_merge(default: Mapping[str, Any], user: Mapping[str, Any]) -> Tree:
    """Return a new plain dict with the keys of both; where both have a value, `user` wins, and two dicts are merged."""
    merged = to_plain(default)
    for key, value in items(user):
        old = merged.get(key)
        both = isinstance(old, dict) and isinstance(value, Mapping)
        merged[key] = deep_merge(old, value) if both else to_plain(value)
    return merged  # type: ignore[no-any-return]


def get_path(tree: Mapping[str, Any], path: str, default: Any = None) -> Any:
    """Return the value at a path, or `default` where there is none; the empty path is the tree itself."""
    value: Any = tree
    for key in path.split(".") if path else ():
        if not isinstance(value, Mapping) or key not in value:
            return default
        value = value[key]
    return value


def set_path(tree: Tree, path: str, value: Any) -> None:
    """Put a value at a path, making the sections above it; what stands in a section's place is replaced."""
    *sections, last = path.split(".")
    for key in sections:
        if not isinstance(tree.get(key), dict):
            tree[key] = {}
        tree = tree[key]
    tree[last] = value


def leaves(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of everything that is not a section; an empty dict counts as a value."""
    for key, value in items(tree):
        if isinstance(value, Mapping) and value:
            yield from leaves(value, join(path, key))
        else:
            yield join(path, key), value
