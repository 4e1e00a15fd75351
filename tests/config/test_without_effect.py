"""Keys that change nothing are named once, with what does; everything else is left alone."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from easydict import EasyDict

from ding_like.config import compile_config
from ding_like.config.di_engine import PARALLEL_COLLECTOR, SYSTEM
from ding_like.config.tree import get_path
from ding_like.pipeline.parallel.comm_collector import ZerglingParallelCollector
from ding_like.pipeline.parallel.settings import SYSTEM_TEMPLATE, read_system, serial_parts
from tests.config.conftest import FakeLearner

REASONS = {"hook.colour": "a log has no colour", "num_workers": "use num_threads"}


@pytest.fixture(autouse=True)
def _declare(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"num_workers": 2, "hook": {"colour": "red", "save_ckpt_after_iter": 10000}}
    monkeypatch.setattr(FakeLearner, "config", config)
    monkeypatch.setattr(FakeLearner, "without_effect", REASONS, raising=False)


def said(learner: dict[str, Any], create: dict[str, Any], caplog: pytest.LogCaptureFixture, **kwargs: Any) -> list[str]:
    with caplog.at_level(logging.INFO, logger="ding_like"):
        compile_config({"policy": {"learn": {"learner": learner}}, **kwargs}, create, source="some_config.py")
    return [record.getMessage() for record in caplog.records if "no effect" in record.getMessage()]


def test_keys_set_in_vain_are_named_in_one_message(create: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    (message,) = said({"num_workers": 4, "hook": {"colour": "blue"}}, create, caplog)

    assert message.splitlines() == [
        "some_config.py: these keys have no effect",
        "  policy.learn.learner.hook.colour   a log has no colour",
        "  policy.learn.learner.num_workers   use num_threads",
    ]
    assert caplog.records[-1].levelname == "INFO"


def test_a_default_that_is_written_out_is_not_named(create: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    assert said({"num_workers": 2, "hook": {"colour": "red"}}, create, caplog) == []


def test_settings_of_a_commander_that_are_copies_are_named(
    create: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="ding_like"):
        compile_config({"policy": {"other": {"commander": {"eval_interval": 5}}}}, create)

    assert "policy.other.commander.eval_interval   policy.eval.evaluator.eval_freq says how often" in caplog.text


def test_settings_of_a_parallel_run_that_change_nothing_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy = {"on_policy": True, "collect": {"n_sample": 8}, "learn": {}}
    system = {"learner_gpu_num": 2, "coordinator": {"learner_task_timeout": 5, "port": 0}}
    with caplog.at_level(logging.INFO, logger="ding_like"):
        read_system(system, EasyDict(exp_name=str(tmp_path), policy=policy), in_memory=False)
        serial_parts({}, {"collector": {"type": "zergling", "compressor": "lz4"}})

    named = [line.split()[0] for record in caplog.records for line in record.getMessage().splitlines()[1:]]
    assert named == [
        "system.learner_gpu_num",
        "system.coordinator.learner_task_timeout",
        "create_config.collector.compressor",
    ]
    assert all(get_path(SYSTEM_TEMPLATE, path, "absent") != "absent" for path in SYSTEM)
    assert set(PARALLEL_COLLECTOR) <= set(ZerglingParallelCollector.config)
