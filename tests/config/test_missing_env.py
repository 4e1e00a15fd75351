"""The error about a module of DI-engine's zoo that is not here names the gymnasium env to take."""

from __future__ import annotations

from typing import Any

import pytest

from ding_like.config import compile_config
from ding_like.errors import ConfigError


def _error(type_: str, modules: list[str], **env: Any) -> str:
    create = dict(env=dict(type=type_, import_names=modules), policy=dict(type="dqn"))
    with pytest.raises(ConfigError) as raised:
        compile_config(dict(env=env), create, save=False)
    return str(raised.value)


def test_a_near_id_is_named_from_the_type_or_the_module() -> None:
    for type_, module, stem in [
        ("frozen_lake", "dizoo.frozen_lake.envs.frozen_lake_env", "FrozenLake-v"),
        ("cliffwalking", "dizoo.cliffwalking.envs.cliffwalking_env", "CliffWalking-v"),
        ("some_name", "dizoo.taxi.envs.taxi_env", "Taxi-v"),
    ]:
        said = _error(type_, [module])

        assert "create_config.env=dict(type='gymnasium')" in said
        assert f"env.env_id='{stem}" in said


def test_an_id_that_the_config_gives_is_named_as_it_stands() -> None:
    assert "env.env_id='Acrobot-v1'" in _error("x", ["dizoo.taxi.envs.taxi_env"], env_id="Acrobot-v1")


def test_without_a_near_id_it_is_said_how_other_packages_are_named() -> None:
    said = _error("gfootball", ["dizoo.gfootball.envs.gfootball_env"])

    assert "gymnasium has no id like it" in said
    assert "env.env_id='its_module:ItsId-v0'" in said


def test_other_faults_of_an_env_get_no_such_hint() -> None:
    for type_, modules in [
        ("taxi", ["my_own_module"]),
        ("taxi", []),
        ("pendulums", ["dizoo.classic_control.pendulum.envs"]),
    ]:
        assert "dizoo has no such env" not in _error(type_, modules)
