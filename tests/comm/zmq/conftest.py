"""What tests of the ZeroMQ way share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Close at the end of a test what it opened."""
    with ExitStack() as stack:
        yield stack
