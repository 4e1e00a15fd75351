"""Fixtures of the tests of `parallel`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.parallel.runs import Run, small_dqn
from tests.pipeline.parallel.service_parts import Rig


@pytest.fixture
def make_rig(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    """Give what makes a rig with settings of `make_core`, on a state file in the test's folder; all are closed."""
    made: list[Rig] = []

    def make(folder: str = "", **cfg: Any) -> Rig:
        made.append(Rig(tmp_path / folder, **cfg))
        return made[-1]

    yield make
    for rig in made:
        rig.core.close()


@pytest.fixture
def rig(make_rig: Callable[..., Rig]) -> Rig:
    """Give a rig with the settings of `make_core`."""
    return make_rig()


@pytest.fixture
def make_run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Give what makes a run, of `small_dqn` if no config is given; all are closed."""
    made: list[Run] = []

    def make(folder: str = "", *, config: Any = None, max_env_step: int = 100_000, **system: Any) -> Run:
        system = {"segment_rows": 16, **system}
        made.append(Run(tmp_path / folder, config or small_dqn(), max_env_step=max_env_step, **system))
        return made[-1]

    yield make
    for run in made:
        run.close()


@pytest.fixture
def run(make_run: Callable[..., Run]) -> Run:
    """Give a run of `small_dqn`."""
    return make_run()
