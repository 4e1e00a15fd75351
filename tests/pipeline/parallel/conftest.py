"""Fixtures of the tests of `parallel`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ding_like.pipeline.parallel.core import CoordinatorCore
from tests.pipeline.parallel.service_parts import make_core


@pytest.fixture
def core(tmp_path: Path) -> Iterator[CoordinatorCore]:
    """Give a core with the settings of `make_core`, on a state file in the test's folder."""
    made = make_core(tmp_path)
    yield made
    made.close()
