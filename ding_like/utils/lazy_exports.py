"""Import what a package exports when it is first used, so that the package itself stays light."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any


def lazy_export(
    package: str, home_of: Mapping[str, str], name: str, *, instead: Mapping[str, str] | None = None
) -> Any:
    """Return what `package` exports as `name`, from its home: a module, or "module:name" where it is called otherwise.

    It is what a package's `__getattr__` returns. `instead` are names of DI-engine that do not exist here, with what to
    use in their place: they raise ImportError, as `from package import name` would hide the text of any other error.
    Raises AttributeError for a name that is in neither.
    """
    if name in home_of:
        module, _, own_name = home_of[name].partition(":")
        return getattr(importlib.import_module(module), own_name or name)
    if instead and name in instead:
        raise ImportError(f"{package} has no {name}: {instead[name]}", name=package)
    exported = f"; it exports {', '.join(home_of)}" if home_of else ""
    raise AttributeError(f"module '{package}' has no attribute '{name}'{exported}")
