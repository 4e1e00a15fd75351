"""Hold a config that cannot change any more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from easydict import EasyDict

from ding_like.config.tree import items, to_plain
from ding_like.errors import ConfigError


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
    """Be a list of a frozen config."""

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse("a change")
    append = extend = insert = pop = remove = clear = sort = reverse = _refuse("a change")

    def __deepcopy__(self, memo: object) -> list[Any]:
        thawed: list[Any] = EasyDict(value=to_plain(self)).value
        return thawed

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenList, (list(self),)


class FrozenConfig(EasyDict):  # type: ignore[misc]  # easydict has no annotations
    """Be an EasyDict that refuses every change with ConfigError.

    `copy.deepcopy(cfg)` and `cfg.copy()` give a mutable EasyDict, `to_plain(cfg)` a plain dict. Pickling keeps it
    frozen.
    """

    def __init__(self, tree: Mapping[str, Any] | None = None) -> None:
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
