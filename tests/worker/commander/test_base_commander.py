from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ding_like.errors import ConfigError
from ding_like.types import CommandMode
from ding_like.worker import BaseSerialCommander


def make(**kwargs: Any) -> BaseSerialCommander:
    learner = SimpleNamespace(learn_info={"learner_step": 3, "learner_done": False})
    collector = SimpleNamespace(envstep=24)
    return BaseSerialCommander({}, learner, collector, None, None, **kwargs)


def command_mode(seen: list[dict[str, Any]]) -> CommandMode:
    def get_setting_collect(info: dict[str, Any]) -> dict[str, Any]:
        seen.append(info)
        return {"eps": 0.1}

    return CommandMode(None, get_setting_collect, None)


def test_step_gives_the_policy_what_learner_and_collector_know() -> None:
    seen: list[dict[str, Any]] = []

    setting = make(policy=command_mode(seen)).step()

    assert setting == {"eps": 0.1}
    assert seen == [{"learner_step": 3, "learner_done": False, "envstep": 24}]


def test_policy_may_be_set_later() -> None:
    commander = make()

    commander.policy = command_mode([])

    assert commander.step() == {"eps": 0.1}


def test_step_without_a_policy_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"commander\.policy = "):
        make().step()


def test_default_config_is_empty_but_for_its_name() -> None:
    assert BaseSerialCommander.default_config() == {"cfg_type": "BaseSerialCommanderDict"}
