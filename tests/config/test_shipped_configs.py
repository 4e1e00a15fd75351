"""Every config in dizoo is in order and runs again from what it saved."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ding_like.config import compile_config, read_config

CONFIGS = sorted((Path(__file__).parents[2] / "dizoo").rglob("config/*_config.py"))


@pytest.fixture(autouse=True)
def _restore_sys_path() -> Iterator[None]:
    before = list(sys.path)
    yield
    sys.path[:] = before


def test_there_are_shipped_configs() -> None:
    assert CONFIGS


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_config_compiles_and_so_does_what_it_saved(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = read_config(path)

    cfg = compile_config(file.main_config, file.create_config, source=str(path))
    saved = read_config(Path(cfg.exp_name) / "total_config.py")
    again = compile_config(saved.main_config, saved.create_config, renew_dir=False, save=False)

    assert again == cfg
    assert not caplog.records
