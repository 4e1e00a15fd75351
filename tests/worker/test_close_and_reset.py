"""What the API page of `ding.worker` says of `close` and `reset_env`, for collectors and evaluators."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import ding_like.worker as worker
from ding_like.worker import InteractionSerialEvaluator, SampleSerialCollector
from tests.worker.scripted_manager import CountingActor, ScriptedManager

pytestmark = pytest.mark.usefixtures("in_tmp")


class TbLogger:
    """Note the calls of a SummaryWriter."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def add_scalar(self, tag: str, value: float, global_step: int = 0) -> None:
        self.calls.append("add_scalar")

    def flush(self) -> None:
        self.calls.append("flush")

    def close(self) -> None:
        self.calls.append("close")


class Manager(ScriptedManager):
    num_resets = 0

    def reset(self, *args: Any, **kwargs: Any) -> None:
        self.num_resets += 1
        super().reset(*args, **kwargs)


def nothing(*_: Any, **__: Any) -> None: ...


MODE = SimpleNamespace(actor=CountingActor(), segment=nothing, num_ready=nothing, get_attribute=nothing)


def part(cls: Any, tb_logger: Any) -> Any:
    return cls(cls.default_config(), Manager([[2], [2]]), MODE, tb_logger)


@pytest.mark.parametrize("cls", [SampleSerialCollector, InteractionSerialEvaluator])
def test_close_flushes_and_closes_the_tb_logger_once(cls: Any) -> None:
    tb_logger = TbLogger()
    made = part(cls, tb_logger)

    made.close()
    made.close()

    assert tb_logger.calls == ["flush", "close"]


@pytest.mark.parametrize("cls", [SampleSerialCollector, InteractionSerialEvaluator])
def test_close_accepts_a_writer_without_close(cls: Any) -> None:
    class Writer:
        def write(self, *_: Any, **__: Any) -> None: ...

    part(cls, Writer()).close()


@pytest.mark.parametrize("cls", [SampleSerialCollector, InteractionSerialEvaluator])
def test_reset_env_without_an_env_resets_the_old_one(cls: Any) -> None:
    made = part(cls, None)
    manager = made._env
    before = manager.num_resets

    made.reset_env(None)

    assert manager.num_resets == before + 1
    made.close()


def test_every_exported_name_is_there_and_others_are_not() -> None:
    assert [name for name in worker.__all__ if getattr(worker, name).__name__ != name] == []
    assert set(worker.__all__) <= set(dir(worker))
    with pytest.raises(AttributeError, match="BaseLearner"):
        worker.BassLearner  # noqa: B018


def test_importing_the_package_imports_no_torch() -> None:
    code = "import sys, ding_like.worker; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
