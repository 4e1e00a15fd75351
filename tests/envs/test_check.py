"""What `check_env` says of an env that keeps the rules, and of each that breaks one."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
import pytest

from ding_like.envs import EnvFactory
from ding_like.envs.check import Finding, check_env
from ding_like.errors import ConfigError
from tests.envs import bad_envs
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
