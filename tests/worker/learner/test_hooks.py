from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ding_like.errors import ConfigError, RegistryError
from ding_like.worker import (
    LearnerHook,
    add_learner_hook,
    build_learner_hook_by_cfg,
    merge_hooks,
    register_learner_hook,
)
from ding_like.worker.learner import LearnerMonitor, LoadCkptHook, LogShowHook, SaveCkptHook, show_hooks


class IdleHook(LearnerHook):
    def __call__(self, engine: Any) -> None:
        """Do nothing."""


def idle(name: str, priority: float, position: str = "after_iter") -> IdleHook:
    return IdleHook(name, priority, position=position)


def names(hooks: list[LearnerHook]) -> list[str]:
    return [hook.name for hook in hooks]


def no_hooks() -> dict[str, list[LearnerHook]]:
    return build_learner_hook_by_cfg({})


def test_a_hook_that_is_switched_off_is_left_out() -> None:
    off = {"save_ckpt_after_run": False, "load_ckpt_before_run": ""}
    hooks = build_learner_hook_by_cfg({"hook": {**off, "log_show_after_iter": 10}})

    assert [names(found) for found in hooks.values() if found] == [["log_show_after_iter"]]


def test_short_form_derives_type_position_and_priority() -> None:
    hooks = build_learner_hook_by_cfg(
        {
            "load_ckpt_before_run": "some/path",
            "log_show_after_iter": 10,
            "save_ckpt_after_iter": 20,
            "save_ckpt_after_run": True,
            "log_reduce_after_iter": True,
        }
    )

    assert {position: names(found) for position, found in hooks.items()} == {
        "before_run": ["load_ckpt_before_run"],
        "after_run": ["save_ckpt_after_run"],
        "before_iter": [],
        "after_iter": ["log_reduce_after_iter", "log_show_after_iter", "save_ckpt_after_iter"],
    }
    assert [hook.priority for hook in hooks["after_iter"]] == [10, 20, 20]
    assert isinstance(hooks["before_run"][0], LoadCkptHook)
    assert isinstance(hooks["after_iter"][1], LogShowHook)
    assert isinstance(hooks["after_run"][0], SaveCkptHook)


def test_hooks_that_cannot_be_are_refused() -> None:
    for entry, error, said in (
        ({"key": {"type": "log_show"}}, ConfigError, "hook 'key' lacks position"),
        ({"log_show": 3}, ConfigError, "_before_run"),
        ({"log_shaw_after_iter": 3}, RegistryError, "did you mean 'log_show'"),
        ({"log_show_after_iter": "often"}, ConfigError, "often"),
        ({"load_ckpt_before_run": 3}, ConfigError, "3"),
        ({"log_show_after_iter": 0}, ConfigError, "0"),
    ):
        with pytest.raises(error, match=said):
            build_learner_hook_by_cfg(entry)
    with pytest.raises(ConfigError, match="after_life"):
        idle("x", 1, "after_life")
    with pytest.raises(ConfigError, match="-1"):
        idle("x", -1)
    wrong: list[Any] = [dict, "log_show", print]
    for hook_type in wrong:
        with pytest.raises(RegistryError, match="subclass of LearnerHook"):
            register_learner_hook("test_wrong", hook_type)
    with pytest.raises(RegistryError, match="log_show"):
        register_learner_hook("log_show", IdleHook)


def test_full_form_gives_every_setting_and_has_defaults() -> None:
    register_learner_hook("test_idle", IdleHook)
    (plain,) = build_learner_hook_by_cfg({"key": {"type": "test_idle", "position": "after_run"}})["after_run"]
    (short,) = build_learner_hook_by_cfg({"test_idle_before_iter": 7})["before_iter"]
    assert (plain.name, plain.priority, plain.ext_args) == ("key", 100, {})
    assert (type(short), short.ext_args, short.priority) == (IdleHook, {"freq": 7}, 100)
    entry = {"type": "test_idle", "name": "mine", "position": "before_iter", "priority": 3, "ext_args": {"freq": 2}}

    (hook,) = build_learner_hook_by_cfg({"anything": entry})["before_iter"]

    assert type(hook) is IdleHook
    assert (hook.name, hook.priority, hook.position, hook.ext_args) == ("mine", 3, "before_iter", {"freq": 2})


def test_add_keeps_the_order_of_equal_priorities() -> None:
    hooks = no_hooks()

    for name, priority in (("a", 20), ("b", 10), ("c", 20), ("d", 10), ("e", 15)):
        add_learner_hook(hooks, idle(name, priority))

    assert names(hooks["after_iter"]) == ["b", "d", "e", "a", "c"]


def test_merge_is_stable_and_leaves_its_arguments_alone() -> None:
    first, second = no_hooks(), no_hooks()
    add_learner_hook(first, idle("a", 10))
    add_learner_hook(first, idle("b", 20))
    add_learner_hook(second, idle("c", 10))
    add_learner_hook(second, idle("d", 5))

    merged = merge_hooks(first, second)

    assert names(merged["after_iter"]) == ["d", "a", "c", "b"]
    assert (names(first["after_iter"]), names(second["after_iter"])) == (["a", "b"], ["d", "c"])


def test_merge_refuses_other_positions() -> None:
    with pytest.raises(ConfigError, match="after_iter"):
        merge_hooks(no_hooks(), {"before_run": []})


def test_hooks_are_shown_in_the_order_they_run_in() -> None:
    hooks = build_learner_hook_by_cfg(
        {"save_ckpt_after_iter": 20, "log_show_after_iter": 10, "log_reduce_after_iter": 1}
    )

    shown = [line.split() for line in show_hooks(hooks).splitlines()]

    assert shown == [
        ["after_iter", "log_reduce_after_iter", "10"],
        ["after_iter", "save_ckpt_after_iter", "20"],
        ["after_iter", "log_show_after_iter", "20"],
    ]


@pytest.mark.parametrize(
    "values",
    [[1, 2.0], [torch.tensor(1), 2.0], [np.float32(1), torch.tensor([2.0])], [torch.tensor(1), torch.tensor(2)]],
)
def test_numbers_and_tensors_are_averaged_alike(values: list[object]) -> None:
    monitor = LearnerMonitor(["loss"])

    for value in values:
        monitor.record({"loss": value})

    assert monitor.averages() == {"loss": 1.5}


def test_values_of_one_learner_and_of_all_stand_in_one_window() -> None:
    monitor = LearnerMonitor(["q_value"])
    monitor.record({"q_value": torch.tensor(3.0)})  # averaged over learners
    monitor.record({"q_value": torch.tensor([[1.0, 2.0], [3.0, 4.0]])})  # not averaged: a learner was lost

    assert monitor.averages() == {"q_value": 2.75}
