"""Every number of a config has bounds beside its default, and what lies outside is refused."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from ding_like.config import compile_config
from ding_like.config.schema import ENV_BOUNDS, ENV_TEMPLATE, PARTS, TOP_BOUNDS, TOP_TEMPLATE, class_defaults
from ding_like.config.tree import leaves
from ding_like.errors import ConfigError
from ding_like.utils.bounds import ABOVE_0, ANY_NUMBER, FINITE, FROM_1, SHARE, SHARE_ABOVE_0, Bounds, declared
from ding_like.worker.replay_buffer.presets import PresetBuffer


def registered() -> Iterator[tuple[str, type[Any]]]:
    for part in PARTS:
        for name in part.registry.names():
            cls = part.registry.get(name)
            if cls.__module__.startswith("ding_like."):  # other tests register what is only theirs
                yield f"{part.name} {name}", cls


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def test_every_number_of_a_class_has_bounds_that_its_default_keeps() -> None:
    buffer = {
        f"other.replay_buffer.{path}": each for path, each in declared(PresetBuffer, "config_bounds").items()
    }  # a policy's section
    wrong = {}
    for name, cls in registered():
        bounds = declared(cls, "config_bounds") | buffer
        defaults = dict(leaves(class_defaults(cls)))
        typed = {path for path, types in declared(cls, "config_types").items() if {int, float} & set(types)}
        without = {path for path, value in defaults.items() if is_number(value)} | typed
        outside = {path: value for path, value in defaults.items() if path in bounds and not bounds[path].hold(value)}
        if without - bounds.keys() or outside:
            wrong[name] = without - bounds.keys(), outside

    assert not wrong


def test_what_no_class_has_is_bounded_too() -> None:
    top = {path for path, value in leaves(TOP_TEMPLATE) if is_number(value)}
    env = {path for path, value in leaves(ENV_TEMPLATE) if is_number(value)}

    assert TOP_BOUNDS.keys() == top
    assert ENV_BOUNDS.keys() == env


BOUNDS: list[tuple[Bounds, list[float], list[float], str]] = [
    (FROM_1, [1, 7, 1e9], [0, -1, 0.5, math.nan, math.inf], "1 or more"),
    (ABOVE_0, [1e-9, 3], [0, -1e-9, math.inf, math.nan], "a number above 0"),
    (SHARE, [0, 0.5, 1], [-0.1, 1.1, math.nan], "a number from 0 to 1"),
    (SHARE_ABOVE_0, [1e-3, 1], [0, 1.1, math.nan], "a number above 0 and at most 1"),
    (FINITE, [-5, 0, 5], [math.inf, -math.inf, math.nan], "a finite number"),
    (ANY_NUMBER, [-5, math.inf, -math.inf], [math.nan], "a number"),
    (Bounds(1, also=(-1,)), [-1, 1], [0, -2], "-1, or 1 or more"),
    (Bounds(1, may_be_infinite=True), [1, math.inf], [0, math.nan], "1 or more"),
]


def test_bounds_hold_what_they_say() -> None:
    for bounds, inside, outside, text in BOUNDS:
        assert all(map(bounds.hold, inside)), text
        assert not any(map(bounds.hold, outside)), text
        assert str(bounds) == text


def faults_of(**policy: Any) -> str:
    main = {"env": {"env_id": "CartPole-v1"}, "policy": policy}
    with pytest.raises(ConfigError) as caught:
        compile_config(main, {"env": {"type": "gymnasium"}, "policy": {"type": "dqn"}}, save=False)
    return str(caught.value)


def test_all_numbers_out_of_range_are_one_error_with_value_range_and_default() -> None:
    text = faults_of(discount_factor=1.7, learn={"learning_rate": -1.0, "update_per_collect": 0})

    assert "3 problems" in text
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "policy.discount_factor is 1.7; give a number from 0 to 1 (default 0.97)" in rows
    assert "policy.learn.learning_rate is -1.0; give a number above 0 (default 0.001)" in rows
    assert "policy.learn.update_per_collect is 0; give a number from 1 to 1e+06 (default 3)" in rows


def refusal_of(*overrides: str, policy: str = "dqn") -> str:
    main, create = {"env": {"env_id": "CartPole-v1"}, "policy": {}}, {"env": {"type": "gymnasium"}}
    with pytest.raises(ConfigError) as caught:
        compile_config(main, {**create, "policy": {"type": policy}}, overrides=overrides, save=False, builds_model=True)
    return " ".join(str(caught.value).split())


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("policy.collect.n_sample=1e9", "is 1000000000; give a number from 1 to 1e+07"),
        ("env.collector_env_num=1e9", "is 1000000000; give a number from 1 to 1e+06 (default 8)"),
        ("env.n_evaluator_episode=1e9", "is 1000000000; give a number from 1 to 1e+06 (default 4)"),
        ("policy.learn.target_update_freq=None", "the target network would never change; give 1 or more updates"),
        ("policy.model.dueling=off", "policy.model.dueling is 'off'; give True or False"),
        ("policy.model.head_layer_num=[3]", "policy.model.head_layer_num is [3]; give a whole number"),
    ],
)
def test_what_can_only_be_a_slip_is_refused_before_the_run(override: str, words: str) -> None:
    assert words in refusal_of(override)


def test_a_buffer_that_never_holds_a_batch_is_refused() -> None:
    text = faults_of(learn={"batch_size": 64}, other={"replay_buffer": {"replay_buffer_size": 63}})

    assert "is 63, fewer than the 64 of policy.learn.batch_size" in text
    assert "give 64 or more" in text
