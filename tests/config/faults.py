"""Ask a class what is wrong with a section of its own, as the check of a whole config does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ding_like.config.tree import get_path
from ding_like.utils.bounds import declared


def faults(cls: Any, cfg: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (path, message) of numbers out of bounds, then what the class itself says."""
    for path, bounds in declared(cls, "config_bounds").items():
        if not bounds.hold(get_path(cfg, path)):
            yield path, f"give {bounds}"
    yield from cls.check_config(cfg)
