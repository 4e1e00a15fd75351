"""Imports of `ding` are answered with `ding_like` while a user's file runs, and at no other time."""

from __future__ import annotations

import importlib
import logging
import sys
from pathlib import Path

import pytest

from ding_like.config import read_config
from ding_like.errors import ConfigError

CONFIGS = "main_config = create_config = dict(a=type(SampleSerialCollector))\n"


@pytest.fixture(autouse=True)
def _restore_sys_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    if importlib.util.find_spec("ding") is not None:
        pytest.skip("DI-engine is installed here, and is imported itself")


def test_a_config_file_may_import_ding(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a_config.py"
    path.write_text("from ding.worker import SampleSerialCollector\nimport ding.worker.learner\n" + CONFIGS)

    with caplog.at_level(logging.INFO, logger="ding_like"):
        read_config(path)

    assert [record.message for record in caplog.records] == [
        "a_config.py imports ding.worker.learner: it gets ding_like's; import that in its place"
    ]


def test_afterwards_there_is_no_ding(tmp_path: Path) -> None:
    path = tmp_path / "a_config.py"
    path.write_text("from ding.worker import SampleSerialCollector\n" + CONFIGS)
    finders = list(sys.meta_path)

    read_config(path)

    assert sys.meta_path == finders
    assert not [name for name in sys.modules if name.split(".")[0] == "ding"]
    assert sys.modules["ding_like.worker"].__spec__.name == "ding_like.worker"  # type: ignore[union-attr]
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("ding.worker")


def test_a_module_that_is_not_here_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a_config.py"
    path.write_text("from ding.world_model import base\n")

    with pytest.raises(ConfigError, match=r"DI-engine's ding\.world_model would be ding_like\.world_model here"):
        read_config(path)
