"""What `check_env` says of an env that keeps the rules or breaks one, and what a run says whose env breaks."""

from __future__ import annotations

import logging
import re
import shlex
import time
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ding_like.entry.commands import check_env_command as command
from ding_like.envs import EnvFactory, create_env_manager, make_env
from ding_like.envs.check import Finding, check_env
from ding_like.envs.factory import check_command
from ding_like.errors import ConfigError, EnvError
from tests.envs import bad_envs
from tests.envs.bad_envs import GoodEnv
from tests.envs.my_envs import DiEngineStyleWalk

STEPS = 300


def check(make: Any) -> list[Finding]:
    return check_env(make, num_steps=STEPS)


def serious(make: Any) -> list[Finding]:
    return [each for each in check(make) if each.level != "note"]


def test_a_good_env_has_no_fault_and_no_warning() -> None:
    assert serious(bad_envs.GoodEnv) == []


@pytest.mark.parametrize("env_id", ["CartPole-v1", "MountainCar-v0", "Acrobot-v1"])
def test_gymnasiums_own_envs_have_no_fault(env_id: str) -> None:
    findings = check(EnvFactory(dict(type="gymnasium", env_id=env_id)))

    assert [each for each in findings if each.level == "fault"] == []


# name of the env -> level, topic, part of what was seen, part of how to fix it
FAULTS = {
    "NoSpace": ("fault", "action space", "action_space is None", "self.action_space = gymnasium.spaces.Box"),
    "ShapeOfTwo": ("fault", "observation", "in reset, obs has shape (2,)", "declare Box(..., shape=(2,))"),
    "Float64": ("fault", "observation", "obs has dtype float64", "np.array(obs, dtype=np.float32)"),
    "ListObs": ("fault", "observation", "obs is list [", "np.array(obs, dtype=np.float32)"),
    "OutOfRange": ("fault", "observation", "in step, obs[2] is 12", "widen the Box, or clip"),
    "NanObs": ("fault", "observation", "in step, obs[1] is nan", "end the episode before"),
    "DictWithoutKey": ("fault", "observation", "obs has the keys ['arm', 'lag']", "same keys"),
    "DiscreteObs": ("fault", "observation", "obs is 3, outside Discrete(3)", "larger Discrete(n)"),
    "TupleSpace": ("fault", "observation space", "Tuple does not fit in arrays", "env.wrappers="),
    "ChannelsLast": ("warning", "observation space", "channels last", "dict(type='obs_transpose')"),
    "FlatBox": ("warning", "observation space", "lower bound equal to the upper", "leave out"),
    "ActionsFromOne": ("fault", "step", f"with action {np.int64(0)!r} it raised ValueError", "Discrete(n, start=1)"),
    "BreaksAtTheBound": ("fault", "step", "ValueError: too far", "fix step()"),
    "Unbounded": ("warning", "action space", "has no bounds", "declare Box(-1.0, 1.0, ...)"),
    "WritesIntoAction": ("warning", "step", "it wrote into the action", "not out=action"),
    "ResetKnowsNoSeed": ("fault", "reset", "unexpected keyword argument 'seed'", "def reset(self, *, seed=None"),
    "ResetReturnsObs": ("fault", "reset", "it returned an array float32 (3,)", "return obs, {}"),
    "BreaksInReset": ("fault", "reset", "ValueError: no road", "fix reset()"),
    "FourValues": ("fault", "step", "it returned 4 values", "return obs, float(reward), terminated, truncated, {}"),
    "InfoIsNone": ("fault", "step", "info is NoneType", "truncated, {}"),
    "NumbersAsFlags": ("fault", "episode end", "terminated is int 0", "return bool(terminated)"),
    "BothFlags": ("fault", "episode end", "both True", "truncated = self._t >= limit"),
    "TimeIsTermination": ("warning", "episode end", "terminated after 20 steps", "self._t >= limit, info"),
    "ArrayReward": ("fault", "reward", "it is an array float64 (1,)", "return float(reward)"),
    "NanReward": ("fault", "reward", "it is float nan", "division by 0"),
    "Endless": ("warning", "episode end", "no episode ended in 300 random steps", "dict(type='time_limit'"),
    "GlobalNumbers": ("fault", "seeding", "first at the first observation", "draws from the global random numbers"),
    "Unseeded": ("fault", "seeding", "first at the first observation", "super().reset(seed=seed) first"),
    "Deterministic": ("warning", "seeding", "seeds 0 and 1 give the same", "self.np_random"),
    "SharedState": ("fault", "seeding", "a second env gives another episode", "not in the class"),
    "ReusedMemory": ("warning", "observation", "wrote over the observation", ".copy()"),
    "BreaksInClose": ("fault", "close", "OSError: no window", "fix close()"),
    "ClosesOnce": ("warning", "close", "OSError: no window", "return"),
    "BreaksWhenMade": ("fault", "constructor", "ValueError: no map", "arguments"),
    "NoEnv": ("fault", "environment", "it lacks reset, seed, close", "class MyEnv(gymnasium.Env)"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_with_its_mend_and_brings_no_others_along(name: str) -> None:
    level, topic, seen, fix = FAULTS[name]

    (found,) = serious(getattr(bad_envs, name))

    assert (found.level, found.topic) == (level, topic)
    assert seen in found.seen
    assert fix in found.fix
    assert found.expected


def test_a_fault_that_comes_again_is_one_finding_with_a_count() -> None:
    (found,) = serious(bad_envs.Float64)

    assert found.count > STEPS


def test_where_an_env_raised_is_named() -> None:
    (found,) = serious(bad_envs.BreaksInReset)

    assert "bad_envs.py:" in found.seen


def test_a_check_that_ends_at_a_fault_says_so() -> None:
    assert any(each.level == "note" and "ended at a fault" in each.seen for each in check(bad_envs.FourValues))


def test_faults_come_first_and_notes_last() -> None:
    class Two(bad_envs.ReusedMemory, bad_envs.NanReward):
        pass

    levels = [each.level for each in check(Two)]

    assert levels == sorted(levels, key=["fault", "warning", "note"].index)
    assert {"fault", "warning", "note"} == set(levels)


def test_what_is_good_to_know_is_a_note() -> None:
    for name, topic, seen in [
        ("StartsAtOne", "action space", "counts from 1; policies see 0 to 1"),
        ("Doubled", "action space", "another range than -1 to 1"),
        ("CannotRender", "rendering", "no video"),
        ("GoodEnv", "speed", "steps a second"),
    ]:
        findings = check(getattr(bad_envs, name))

        assert [each.level for each in findings if each.topic == topic and seen in each.seen] == ["note"]
        assert serious(getattr(bad_envs, name)) == []


def test_a_known_time_limit_beyond_the_steps_is_a_note() -> None:
    findings = check_env(EnvFactory(dict(type="gymnasium", env_id="Pendulum-v1")), num_steps=100)

    assert [each.level for each in findings if each.topic == "episode end"] == ["note"]


def test_pictures_of_an_env_that_draws_are_checked() -> None:
    found = [each for each in check(lambda: bad_envs.RendersFloats(render_mode="rgb_array")) if each.level == "fault"]

    assert [each.topic for each in found] == ["rendering"]
    assert "float64" in found[0].seen


def test_an_env_in_the_seeds_style_is_checked_too() -> None:
    findings = check(lambda: DiEngineStyleWalk({}))

    assert [each for each in findings if each.level == "fault"] == []
    assert any("in DI-engine's style" in each.seen for each in findings)


def test_an_env_itself_is_checked_and_closed() -> None:
    class Closing(bad_envs.GoodEnv):
        closes = 0

        def close(self) -> None:
            self.closes += 1

    env = Closing()

    assert [each for each in check(env) if each.level != "note"] == []
    assert env.closes > 0


def test_the_check_leaves_global_random_numbers_alone() -> None:
    np.random.seed(3)
    expected = np.random.random()
    np.random.seed(3)

    check(bad_envs.Unseeded)

    assert np.random.random() == expected


class SlowEnv(bad_envs.GoodEnv):
    def reset(self, **kwargs: Any) -> Any:
        time.sleep(0.02)
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:
        time.sleep(0.0005)
        return super().step(action)


def test_a_slow_env_is_sent_to_the_subprocess_manager_and_slow_resets_are_named() -> None:
    findings = check_env(SlowEnv, num_steps=100)

    assert ["subprocess" in each.fix for each in findings if each.topic == "speed"].count(True) == 1
    assert any("reseed_after" in each.fix for each in findings)


def test_an_unknown_id_is_an_error_of_ours_not_a_finding() -> None:
    with pytest.raises(ConfigError, match="CartPole-v1"):
        check(EnvFactory(dict(type="gymnasium", env_id="CartPol-v1")))


def test_equal_answers_with_nan_are_equal() -> None:
    class Nan(bad_envs.GoodEnv):
        def _obs(self) -> Any:
            return np.array([self._x, np.nan, 0], np.float32)

    assert [each.topic for each in serious(Nan)] == ["observation"]


def test_wrapped_envs_are_checked_with_their_wrappers() -> None:
    def make() -> Any:
        return gymnasium.wrappers.RescaleAction(bad_envs.Doubled(), np.float32(-1), np.float32(1))

    assert not any(each.topic == "action space" for each in check(make))


HERE = bad_envs.__name__


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
    [(f"BreaksIn{where}", manager) for where, manager in (("Reset", "base"), ("Reset", "gym_vector"), ("Step", "base"))]
    + [("BreaksInStep", "subprocess")],
)
def test_an_env_that_raises_shows_its_line_and_the_command_and_is_said_once(
    name: str, manager: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises(EnvError) as caught:
        launch(name, manager)

    assert re.search(r"ValueError: no \w+ \(.*bad_envs.py:\d+\)", str(caught.value))
    assert f"ding check-env {HERE}:{name}" in str(caught.value)
    assert sum("ValueError" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.parametrize(
    ("name", "said", "manager"),
    [
        ("BreaksWhenMade", r"the env cannot be made: ValueError: no map \(.*bad_envs.py:\d+\)", "subprocess"),
        ("NoSpace", "action_space of NoSpace is not set: set it in the constructor", "base"),
        ("NumberOfActions", "action_space of NumberOfActions is 2, which is no gymnasium space", "gym_vector"),
    ],
)
def test_an_env_that_cannot_be_made_says_why_and_points_to_the_check(name: str, said: str, manager: str) -> None:
    with pytest.raises(EnvError, match=rf"{said}.*ding check-env {HERE}:{name}"):
        launch(name, manager)


@pytest.mark.parametrize(
    ("name", "said", "manager"),
    [
        ("ResetReturnsObs", r"reset\(\) must return two values, \(obs, info\)", "base"),
        ("FourValues", r"step\(\) \(obs, reward, term", "subprocess"),
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
        (dict(type=f"{HERE}:BreaksInReset"), 1, "reset: it raised ValueError: no road"),
        (dict(type=f"{HERE}:BreaksWhenMade"), 1, "constructor: it raised ValueError: no map"),
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
    exec(check_command(bad_envs.BreaksInReset), {"make_env": bad_envs.BreaksInReset})

    assert "no road" in capsys.readouterr().out


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
