"""What `ding check-env` prints, and how it ends."""

from __future__ import annotations

import sys

import pytest

from ding_like.entry.commands import check_env_command as command
from ding_like.entry.commands import env_factory
from ding_like.errors import ConfigError, EnvError, RegistryError


def run(*arguments: str) -> int:
    """Return the exit status of `ding check-env ARGUMENTS`."""
    try:
        command(args=[*arguments, "--steps", "200"], standalone_mode=False)
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def test_a_good_env_ends_with_status_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tests.envs.bad_envs:GoodEnv") == 0

    assert capsys.readouterr().out.splitlines()[-1].startswith("no fault, no warning, ")


def test_a_gymnasium_id_is_checked_and_its_policies_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("CartPole-v1") == 0

    out = capsys.readouterr().out
    assert "Discrete actions are taken by" in out and "dqn" in out
    assert "steps a second" in out


def test_a_fault_is_printed_with_its_mend_and_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tests.envs.bad_envs:FourValues") == 1

    out = capsys.readouterr().out
    assert "  fault    step: it returned 4 values" in out
    assert "           expected  5 values: obs, reward, terminated, truncated, info" in out
    assert "           fix       return obs, float(reward), terminated, truncated, {}" in out
    assert out.splitlines()[-1] == "1 fault, no warning, 1 note"


def test_a_warning_alone_ends_with_status_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tests.envs.bad_envs:Endless") == 0

    assert "no fault, 1 warning" in capsys.readouterr().out


def test_spaces_that_no_policy_takes_are_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tests.envs.bad_envs:OneNumber") == 0

    out = capsys.readouterr().out
    assert "warning  policies: no policy here takes the observation space Box" in out
    assert "FlattenObservation" in out


def test_key_value_pairs_are_the_envs_arguments_or_those_of_the_section() -> None:
    env = env_factory("CartPole-v1", {"sutton_barto_reward": True, "max_episode_steps": 7})()

    env.reset(seed=0)
    assert env.spec is not None and env.spec.max_episode_steps == 7
    assert env.step(0)[1] == 0.0, "a reward of Sutton and Barto's CartPole"
    env.close()


def test_a_registered_type_is_found_with_an_import() -> None:
    factory = env_factory("di_engine_style_walk", {"width": 5}, ["tests.envs.my_envs"])

    assert factory().env.cfg["width"] == 5  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (["CartPol-v1"], ConfigError, "did you mean 'CartPole-v1'"),
        (["cartpoll"], ConfigError, "a gymnasium id ends in its version"),
        (["tests.envs.bad_envs:GodEnv"], ConfigError, "did you mean 'GoodEnv'"),
        (["tests.nowhere:MyEnv"], ConfigError, "tests.nowhere"),
        (["CartPole-v1", "size"], ConfigError, "'size' is not an argument of the env; expected KEY=VALUE"),
        (["CartPole-v1", "size=3"], ConfigError, "size"),
        (["CartPole-v1", "--import", "nowhere"], ConfigError, "nowhere"),
        (["ALE/Pong-v5"], EnvError, "ding-like[atari]"),
    ],
)
def test_what_cannot_be_made_is_one_error(
    arguments: list[str], error: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ale_py", None)

    with pytest.raises(error) as caught:
        run(*arguments)

    assert not isinstance(caught.value, RegistryError)
    assert words in str(caught.value)
