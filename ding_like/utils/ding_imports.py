"""Answer `import ding` in a user's file with `ding_like`, where DI-engine itself is not installed.

Config files and env modules written for DI-engine import its names at the top. While such a file runs, `ding` and all
below it are found in this package; afterwards there is no such module again.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_logger = logging.getLogger(__name__)


class _DingImports(MetaPathFinder, Loader):
    """Find `ding.x` in `ding_like.x`, and keep what was asked for."""

    def __init__(self) -> None:
        self.served: list[str] = []

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec of any module of DI-engine, and of no other."""
        return ModuleSpec(fullname, self, is_package=True) if fullname.split(".")[0] == "ding" else None

    def create_module(self, spec: ModuleSpec) -> None:
        """Let the import system make a module, in whose place `exec_module` puts ours."""

    def exec_module(self, module: ModuleType) -> None:
        """Put our module in the place of the one that is imported. Raises ImportError if we have none of that name."""
        name = module.__name__
        own = "ding_like" + name.removeprefix("ding")
        try:
            sys.modules[name] = importlib.import_module(own)
        except ModuleNotFoundError as error:
            if not f"{own}.".startswith(f"{error.name}."):
                raise
            raise ModuleNotFoundError(f"DI-engine's {name} would be {own} here, which does not exist", name=name) from (
                error
            )
        self.served.append(name)


@contextmanager
def ding_imports(source: str) -> Iterator[None]:
    """Serve imports of `ding` while the block runs, and say that `source` has some; DI-engine itself goes first."""
    if "ding" in sys.modules or importlib.util.find_spec("ding") is not None:
        yield
        return
    finder = _DingImports()
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in finder.served:
            sys.modules.pop(name, None)
        if finder.served:
            _logger.info("%s imports %s: it gets ding_like's; import that in its place", source, finder.served[-1])
