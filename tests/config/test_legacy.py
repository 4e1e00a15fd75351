"""DI-engine's other names and places of keys are read as ours, and its default buffer is there where it is needed."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from ding_like.config import FrozenConfig, compile_config
from ding_like.config.di_engine import LEGACY_KEYS, RENAMED_KEYS
from ding_like.errors import ConfigError
from tests.config.conftest import FakePolicy


def compiled(policy: dict[str, Any], create: dict[str, Any], **kwargs: Any) -> FrozenConfig:
    return compile_config({"policy": policy}, create, save=False, **kwargs)


def test_key_that_stands_elsewhere_here_is_read_there(create: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    policy = compiled({"learn": {"discount_factor": 0.9, "clip_value": 5}}, create).policy

    assert (policy.discount_factor, policy.learn.grad_clip_norm) == (0.9, 5.0)
    assert "discount_factor" not in policy.learn and "clip_value" not in policy.learn
    assert not caplog.records


def test_both_names_that_differ_are_a_contradiction(create: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        compiled({"discount_factor": 0.8, "learn": {"discount_factor": 0.9}}, create)

    assert str(caught.value).splitlines()[1:] == [
        "  policy.learn.discount_factor   is DI-engine's name of policy.discount_factor, which is set to 0.8; give one"
    ]


def test_wrong_type_is_told_by_the_name_that_was_written(create: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"policy\.learn\.target_update_theta +expected float, got str 'slow'"):
        compiled({"learn": {"target_update_theta": "slow"}}, create)


def test_other_name_of_a_key_that_the_class_lacks_is_unknown(create: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"policy\.learn\.betas +unknown key"):
        compiled({"learn": {"betas": (0.9, 0.99)}}, create)


def test_every_other_name_leads_to_a_place_that_is_not_ignored() -> None:
    assert not RENAMED_KEYS.keys() & LEGACY_KEYS.keys()
    assert not set(RENAMED_KEYS.values()) & (RENAMED_KEYS.keys() | LEGACY_KEYS.keys())


def test_the_page_on_di_engine_names_every_other_name() -> None:
    page = (Path(__file__).parents[2] / "docs/di_engine_configs.md").read_text()

    names = {path.rpartition(".")[2] for pair in RENAMED_KEYS.items() for path in pair}
    assert [name for name in sorted(names) if f"{name}`" not in page] == []


def test_key_without_effect_needs_no_default(
    create: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(FakePolicy, "without_effect", {"learn.colour": "a gradient has no colour"}, raising=False)

    cfg = compiled({"learn": {"colour": "red"}}, create)

    assert "colour" not in cfg.policy.learn
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "policy.learn.colour   a gradient has no colour" in record.getMessage()


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({}, "naive"),
        ({"priority": False}, "naive"),
        ({"priority": True}, "advanced"),
        ({"other": {"replay_buffer": {"max_use": 16}}}, "advanced"),
        ({"priority": True, "other": {"replay_buffer": {"type": "naive"}}}, "naive"),
    ],
)
def test_buffer_that_is_not_named_is_the_one_that_is_needed(
    policy: dict[str, Any], expected: str, create: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = {"replay_buffer": {"replay_buffer_size": 99}}
    monkeypatch.setattr(FakePolicy, "config", {**FakePolicy.config, "priority": False, "other": other})
    del create["replay_buffer"]

    buffer = compiled(policy, create).policy.other.replay_buffer

    assert (buffer.type, buffer.replay_buffer_size) == (expected, 99)


def test_keys_of_another_buffer_are_named(create: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    create["replay_buffer"] = {"type": "naive"}

    compiled({"other": {"replay_buffer": {"max_use": 16}}}, create)

    assert "policy.other.replay_buffer.max_use   of buffers that count it" in caplog.text


@pytest.mark.parametrize(("kind", "said"), [("naive", True), ("advanced", False)])
def test_priority_that_a_buffer_does_not_know_is_named(
    kind: str, said: bool, create: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(FakePolicy, "config", {**FakePolicy.config, "priority": False})
    create["replay_buffer"] = {"type": kind}

    with caplog.at_level(logging.INFO, logger="ding_like"):
        compiled({"priority": True}, create)

    assert ("policy.priority   buffer 'naive' samples evenly" in caplog.text) == said
