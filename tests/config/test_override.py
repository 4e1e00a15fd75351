"""Overrides of the command line go through the same check, and errors name them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ding_like.config import compile_config
from ding_like.config.read import parse_value
from ding_like.errors import ConfigError


def test_value_is_a_literal_or_text() -> None:
    for raw, expected in [
        ("128", 128),
        ("-1", -1),
        ("3e-4", 3e-4),
        ("True", True),
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("None", None),
        ("inf", math.inf),
        ("-inf", -math.inf),
        ("[128, 64]", [128, 64]),
        ("(1,)", (1,)),
        ("{'a': 1}", {"a": 1}),
        ("'128'", "128"),
        ("CartPole-v1", "CartPole-v1"),
        ("a=b", "a=b"),
        ("", ""),
        ("[1", "[1"),
        ("{[1]: 2}", "{[1]: 2}"),
    ]:
        value = parse_value(raw)

        assert value == expected
        assert type(value) is type(expected)


def test_override_wins_over_the_file(create: dict[str, Any]) -> None:
    main = {"policy": {"learn": {"batch_size": 32, "learning_rate": 0.1}}}

    cfg = compile_config(main, create, overrides=["policy.learn.batch_size=128"], save=False)

    assert (cfg.policy.learn.batch_size, cfg.policy.learn.learning_rate) == (128, 0.1)


def test_override_with_a_dict_is_merged(create: dict[str, Any]) -> None:
    cfg = compile_config({}, create, overrides=["policy.learn={'batch_size': 2}"], save=False)

    assert (cfg.policy.learn.batch_size, cfg.policy.learn.learning_rate) == (2, 1e-3)


def test_last_of_two_overrides_wins_and_is_named(create: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    overrides = ["policy.nstep=2", "policy.nstep=3", "policy.nstep=3", "seed=1", "seed=1"]

    cfg = compile_config({}, create, overrides=overrides, save=False)

    assert cfg.policy.nstep == 3
    assert caplog.messages == ["policy.nstep=3 replaces policy.nstep=2: the last one holds"]


def test_key_of_type_str_takes_the_text_as_it_is(create: dict[str, Any]) -> None:
    cfg = compile_config({}, create, overrides=["exp_name=007", "env.env_id=1e3"], save=False)

    assert (cfg.exp_name, cfg.env.env_id) == ("007", "1e3")


def test_override_of_a_class_wins_wherever_the_file_names_it(create: dict[str, Any]) -> None:
    main, given = {"env": {"type": "cfg_env"}}, {**create, "env": {"type": "cfg_env"}}

    cfg = compile_config(main, given, overrides=["env.type=cfg_open"], save=False)

    assert cfg.env.type == "cfg_open"


def test_faulty_override_is_named(create: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        compile_config({}, create, overrides=["policy.learn.batchsize=3", "policy.nstep=x"], save=False)

    text = str(caught.value)
    assert "did you mean 'batch_size' (default 64)? (override policy.learn.batchsize=3)" in text
    assert "expected int, got str 'x' (override policy.nstep=x)" in text


def test_argument_that_is_no_override_is_told(create: dict[str, Any]) -> None:
    for text in ["policy.nstep", "=3", "policy..nstep=3", ".nstep=3"]:
        with pytest.raises(ConfigError, match="is not an override; write path.to.key=value"):
            compile_config({}, create, overrides=[text], save=False)


def test_override_of_a_copy_points_to_the_original(create: dict[str, Any]) -> None:
    overrides = ["policy.eval.evaluator.n_episode=50"]

    with pytest.raises(ConfigError, match="is a copy of env.n_evaluator_episode; set that instead"):
        compile_config({}, create, overrides=overrides, save=False)


def test_override_of_an_original_changes_the_copy_in_a_saved_config(create: dict[str, Any]) -> None:
    saved = compile_config({}, create, save=False)

    cfg = compile_config(saved, create, overrides=["env.n_evaluator_episode=50"], save=False)

    assert cfg.policy.eval.evaluator.n_episode == 50
