"""Settings of classes: defaults and the numbers that a setting takes, declared beside the code.

A class declares `config_bounds = {"learn.batch_size": FROM_1}` beside its `config`, by the same paths; those of its
base classes hold too. A config with another number is refused with the value and the range.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from easydict import EasyDict


class Configurable:
    """Class with the attribute `config`: defaults that are merged with the user's config."""

    config: dict[str, Any] = {}

    @classmethod
    def default_config(cls) -> EasyDict:
        """Return a copy of this class's defaults, with `cfg_type` naming the class."""
        return EasyDict(copy.deepcopy(cls.config), cfg_type=f"{cls.__name__}Dict")


class Bounds(NamedTuple):
    """Numbers from `low` to `high`, both among them; NaN is never one."""

    low: float = -math.inf
    high: float = math.inf
    is_above_low: bool = False  # `low` itself is too low
    may_be_infinite: bool = False
    also: tuple[float, ...] = ()  # numbers outside that mean something

    def hold(self, value: object) -> bool:
        """Return whether a setting may have a value; values that are no numbers are checked elsewhere."""
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value in self.also:
            return True
        if abs(value) == math.inf and not self.may_be_infinite:
            return False
        return (self.low < value if self.is_above_low else self.low <= value) and value <= self.high

    @property
    def types(self) -> tuple[type, ...]:
        """Types of these numbers: those from 1 on are whole."""
        return (int,) if self.low == 1 and not self.is_above_low else (int, float)

    def __str__(self) -> str:
        """Return the range as an error names it."""
        also = "".join(f"{each:g}, or " for each in self.also)
        if self.low == -math.inf:
            return also + ("a number" if self.may_be_infinite else "a finite number")
        if self.high == math.inf:
            return also + (f"a number above {self.low:g}" if self.is_above_low else f"{self.low:g} or more")
        if self.is_above_low:
            return also + f"a number above {self.low:g} and at most {self.high:g}"
        return also + f"a number from {self.low:g} to {self.high:g}"


FROM_0 = Bounds(0)
FROM_1 = Bounds(1)
ABOVE_0 = Bounds(0, is_above_low=True)
SHARE = Bounds(0, 1)
SHARE_ABOVE_0 = Bounds(0, 1, is_above_low=True)
FINITE = Bounds()
ANY_NUMBER = Bounds(may_be_infinite=True)


def declared(cls: type[object], name: str) -> dict[str, Any]:
    """Return what a class declares by path under a name, `config_bounds` say, with what its base classes declare."""
    merged: dict[str, Any] = {}
    for base in reversed(getattr(cls, "__mro__", (cls,))):  # a registry may hold functions
        own = vars(base).get(name, {})
        if isinstance(own, Mapping):
            merged |= own
    return merged
