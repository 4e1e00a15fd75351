"""What a user reads whose env breaks: one message, with the line of the env and a command that looks into it."""

from __future__ import annotations

import logging
import re
import shlex
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ding_like.entry.commands import check_env_command as command
from ding_like.envs import EnvFactory, create_env_manager, make_env
from ding_like.envs.check import check_env
from ding_like.envs.factory import check_command
from ding_like.errors import ConfigError, EnvError
from tests.envs.bad_envs import GoodEnv

HERE = __name__


class BadReset(GoodEnv):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        raise LookupError("no map")


class BadStep(GoodEnv):
    def step(self, action: Any) -> Any:
        raise LookupError("no way")


class BadInit(GoodEnv):
    def __init__(self) -> None:
        raise LookupError("no world")


class NoActions(GoodEnv):
    action_space = None


class NumberOfActions(GoodEnv):
    action_space = 2


class OldReset(GoodEnv):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0]


class OldStep(GoodEnv):
    def step(self, action: Any) -> Any:
        return super().step(action)[:4]


class LongStep(GoodEnv):
    def step(self, action: Any) -> Any:
        return np.zeros(4, np.float32), *super().step(action)[1:]


class Halves(GoodEnv):
    observation_space = spaces.Box(0, 255, (3,), np.uint8)

    def _obs(self) -> Any:
        return np.full(3, 0.5)


class Mission(GoodEnv):
    """Observe a text, beside a vector."""

    def __init__(self, kind: str = "text") -> None:
        super().__init__()
        text = spaces.Text(max_length=6, charset="gored ")
        inner = {"text": text, "graph": spaces.Sequence(spaces.Discrete(3)), "pair": spaces.Tuple([spaces.Discrete(2)])}
        self._kind = kind
        self.observation_space = spaces.Dict({"seen": spaces.Box(-9, 9, (1,), np.float32), "mission": inner[kind]})
        if kind == "alone":
            self.observation_space = text

    def _obs(self) -> Any:
        mission = {"text": "go red", "graph": (1, 2), "pair": (1,)}[self._kind]
        return {"seen": np.array([self._x], np.float32), "mission": mission}


def launch(name: str, manager: str = "base", num: int = 2, **section: Any) -> Any:
    make = EnvFactory(dict(type=f"{HERE}:{name}", **section))
    created = create_env_manager(dict(type=manager), [make] * num)
    try:
        created.launch()
        for _ in range(20):
            created.step(np.arange(num), np.zeros(num, np.int64))
    finally:
        created.close()


@pytest.mark.parametrize(
    ("name", "manager"),
    [("BadReset", "base"), ("BadReset", "gym_vector"), ("BadStep", "base"), ("BadStep", "subprocess")],
)
def test_an_env_that_raises_shows_its_line_and_the_command_and_is_said_once(
    name: str, manager: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises(EnvError) as caught:
        launch(name, manager)

    assert re.search(r"LookupError: no \w+ \(.*test_own_env_messages.py:\d+\)", str(caught.value))
    assert f"ding check-env {HERE}:{name}" in str(caught.value)
    assert sum("LookupError" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.parametrize(
    ("name", "said", "manager"),
    [
        ("BadInit", r"the env cannot be made: LookupError: no world \(.*test_own_env_messages.py:\d+\)", "subprocess"),
        ("NoActions", "action_space of NoActions is not set: set it in the constructor", "base"),
        ("NumberOfActions", "action_space of NumberOfActions is 2, which is no gymnasium space", "gym_vector"),
    ],
)
def test_an_env_that_cannot_be_made_says_why_and_points_to_the_check(name: str, said: str, manager: str) -> None:
    with pytest.raises(EnvError, match=rf"{said}.*ding check-env {HERE}:{name}"):
        launch(name, manager)


@pytest.mark.parametrize(
    ("name", "said", "manager"),
    [
        ("OldReset", r"reset\(\) must return two values, \(obs, info\)", "base"),
        ("OldStep", r"step\(\) \(obs, reward, term", "subprocess"),
        (
            "LongStep",
            r"step\(\) has shape \(4,\), its observation space says \(3,\).*ding check-env \S+LongStep",
            "base",
        ),
        ("LongStep", r"step\(\) has shape \(4,\), its observation space says \(3,\)", "subprocess"),
    ],
)
def test_answers_of_another_form_end_the_run_at_once(name: str, said: str, manager: str) -> None:
    with pytest.raises(EnvError, match=said):
        launch(name, manager)


@pytest.mark.parametrize(("name", "times"), [("Halves", 1), ("GoodEnv", 0)])
def test_floats_that_become_whole_numbers_are_warned_of_once(
    name: str, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        launch(name)

    said = [record.getMessage() for record in caplog.records if "float64, its observation" in record.getMessage()]
    assert len(said) == times
    assert all("says uint8" in text and f"ding check-env {HERE}:Halves" in text for text in said)


def test_arguments_that_a_class_does_not_take_are_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"env.kwargs \{'lim': 3\} do not fit .*GoodEnv.*'lim'; it takes \(limit"):
        make_env(dict(type="tests.envs.bad_envs:GoodEnv", kwargs=dict(lim=3)))


def run(line: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run a `ding check-env` line; return its status and what it printed."""
    arguments = shlex.split(line)
    assert arguments[:2] == ["ding", "check-env"]
    try:
        command(args=[*arguments[2:], "--steps", "100"], standalone_mode=False)
    except SystemExit as end:
        return int(end.code or 0), capsys.readouterr().out
    return 0, capsys.readouterr().out


@pytest.mark.parametrize(
    ("section", "status", "said"),
    [
        (dict(type=f"{HERE}:BadReset"), 1, "reset: it raised LookupError: no map"),
        (dict(type=f"{HERE}:BadInit"), 1, "constructor: it raised LookupError: no world"),
        (dict(type="tests.envs.bad_envs:GoodEnv", kwargs=dict(limit=7), wrappers=[dict(type="obs_norm")]), 0, "speed"),
        (dict(type="gymnasium", env_id="CartPole-v1", import_names=["tests.envs.my_envs"]), 0, "speed"),
    ],
    ids=["reset", "constructor", "arguments", "id"],
)
def test_the_command_that_messages_name_runs(
    section: dict[str, Any], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found, text = run(check_command(EnvFactory(section)), capsys)

    assert (found, said in text) == (status, True), text


def test_of_a_function_the_line_of_python_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(check_command(BadReset), {"make_env": BadReset})

    assert "no map" in capsys.readouterr().out


def test_wrappers_that_learn_are_no_fault() -> None:
    for wrapper in ["obs_norm", "reward_norm", "NormalizeObservation"]:
        make = EnvFactory(dict(type="tests.envs.bad_envs:GoodEnv", wrappers=[dict(type=wrapper)]))

        assert [each for each in check_env(make, num_steps=300) if each.level == "fault"] == []


class Forgetful(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Wrapper that keeps a running mean and has no `state_dict`."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._sum, self._count = 0.0, 0

    def observation(self, observation: Any) -> Any:
        self._sum, self._count = self._sum + observation[0], self._count + 1
        return observation - np.float32(self._sum / self._count)


def test_a_wrapper_that_learns_and_cannot_be_saved_is_told_how() -> None:
    faults = [each for each in check_env(lambda: Forgetful(GoodEnv()), num_steps=100) if each.level == "fault"]

    assert [each.topic for each in faults] == ["seeding"]
    assert "state_dict() and load_state_dict(state)" in faults[0].fix


@pytest.mark.parametrize(
    ("kind", "wrapper"),
    [
        ("text", dict(type="encode_text")),
        ("pair", dict(type="FlattenObservation")),
        ("graph", dict(type="FilterObservation", filter_keys=["seen"])),
        ("text", dict(type="FilterObservation", filter_keys=["seen"])),
    ],
)
def test_the_wrapper_that_a_message_names_makes_the_env_fit(kind: str, wrapper: dict[str, Any]) -> None:
    section = dict(type=f"{HERE}:Mission", kwargs=dict(kind=kind))
    with pytest.raises(EnvError) as caught:
        launch("Mission", kwargs=dict(kind=kind))
    assert wrapper["type"] in str(caught.value)

    make = EnvFactory(dict(**section, wrappers=[wrapper]))

    assert [each.seen for each in check_env(make, num_steps=100) if each.level == "fault"] == []


def test_text_becomes_the_numbers_of_its_characters() -> None:
    env = make_env(dict(type=f"{HERE}:Mission", wrappers=["encode_text"]))

    obs, _ = env.reset(seed=0)

    characters = spaces.Text(max_length=6, charset="gored ").character_list
    assert [(" " + "".join(characters))[code] for code in obs["mission"]] == list("go red")
    assert env.observation_space.contains(obs)


def test_encode_text_says_that_there_is_no_text() -> None:
    with pytest.raises(ConfigError, match="for observations with Text"):
        make_env(dict(type="tests.envs.bad_envs:GoodEnv", wrappers=["encode_text"]))
