"""Import what a package exports when it is first used, so that the package itself stays light."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any


def lazy_export(package: str, home_of: Mapping[str, str], name: str) -> Any:
    """Return what `package` exports as `name`, from its home: the module of that name in `home_of`.

    It is what a package's `__getattr__` returns. Raises AttributeError for a name that has none.
    """
    if name not in home_of:
        raise AttributeError(f"module '{package}' has no attribute '{name}'; it exports {', '.join(home_of)}")
    return getattr(importlib.import_module(home_of[name]), name)
