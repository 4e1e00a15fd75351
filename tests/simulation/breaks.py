"""Take fixes out again, to see that the simulation finds what they mend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.simulation.patches import Patches

BREAKS: dict[str, Callable[[Patches], None]] = {}


@contextmanager
def broken(name: str | None) -> Iterator[None]:
    """Run a block without one of the fixes."""
    patches = Patches()
    try:
        if name is not None:
            BREAKS[name](patches)
        yield
    finally:
        patches.undo()
