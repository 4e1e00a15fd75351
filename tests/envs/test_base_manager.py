"""What the in-process manager promises beyond the contract of all managers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ding_like.envs.manager.base import BaseEnvManager
from ding_like.errors import EnvError
from tests.config.faults import faults
from tests.envs.scripted_env import EchoEnv, Recorder, ScriptedEnv


class Kept:
    """Factory of scripted envs that records those it has made."""

    def __init__(self, **kwargs: Any) -> None:
        self.envs: list[ScriptedEnv] = []
        self._kwargs = kwargs

    def make(self, lane: int) -> ScriptedEnv:
        self.envs.append(ScriptedEnv(lane, **self._kwargs))
        return self.envs[-1]

    def env_fn(self, num: int) -> list[Callable[[], ScriptedEnv]]:
        return [functools.partial(self.make, lane) for lane in range(num)]


def step_times(manager: BaseEnvManager, times: int) -> None:
    for _ in range(times):
        manager.step(np.arange(manager.num_lanes), np.zeros(manager.num_lanes, np.int64))


def test_the_observation_before_a_step_outlives_the_step() -> None:
    manager = BaseEnvManager(Kept(script=((9, "terminated"),)).env_fn(2))
    manager.launch()
    step_times(manager, 3)
    before = manager.obs
    copy = before.copy()

    step_times(manager, 1)

    assert np.array_equal(before, copy)


@pytest.mark.parametrize(
    ("cfg", "is_seeded"),
    [
        (dict(reseed_after=0), [1, 1, 1, 1, 1]),
        # Episodes of 2 steps: 6 is the first end at or after 5.
        (dict(reseed_after=5), [1, 0, 0, 1, 0, 0, 1, 0, 0]),
        (dict(reseed_after=6, resume_replay_steps=1), [1, 0, 0, 1]),
    ],
)
def test_reseed_after_seeds_the_first_episode_that_begins_n_steps_later(
    cfg: dict[str, int], is_seeded: list[int]
) -> None:
    kept = Kept(script=((2, "terminated"),))
    manager = BaseEnvManager(kept.env_fn(1), cfg)
    manager.seed(5)
    manager.launch()

    step_times(manager, 2 * len(is_seeded) - 2)

    seeds = [seed for seed in kept.envs[0].resets if seed is not None]
    assert [seed is not None for seed in kept.envs[0].resets] == [bool(each) for each in is_seeded]
    assert seeds[0] == 5 and len(set(seeds)) == len(seeds)


def test_a_crashed_env_is_closed_and_made_anew_and_the_other_lanes_answer(tmp_path: Any) -> None:
    made: list[ScriptedEnv] = []

    def make(lane: int) -> ScriptedEnv:
        made.append(ScriptedEnv(lane, faults={(0, 1): "raise"} if lane == 1 else None, fault_dir=str(tmp_path)))
        return made[-1]

    manager = BaseEnvManager([functools.partial(make, lane) for lane in range(3)])
    manager.launch()

    batch = manager.step(np.arange(3), np.array([1, 1, 2]))

    assert batch.lanes.tolist() == [0, 2] and batch.dropped.tolist() == [1]
    assert batch.next_obs[:, 0].tolist() == [0, 2]
    assert batch.reward.tolist() == [1.0, 1.0]
    assert manager.obs[:, 2].tolist() == [1, 0, 1] and manager.ready.all()
    assert [env.is_closed for env in made] == [False, True, False, False]


def test_a_fault_in_the_last_step_of_an_episode_drops_it_too(tmp_path: Any) -> None:
    kept = Kept(script=((2, "terminated"),), faults={(0, 2): "nan_obs"}, fault_dir=str(tmp_path))
    manager = BaseEnvManager(kept.env_fn(1))
    recorder = Recorder(manager)
    manager.launch()

    for _ in range(4):
        recorder.step()

    assert recorder.dropped == [0]
    assert [t.terminated for t in recorder.transitions[0]] == [False, False, True]


def test_finished_episodes_keep_a_shaky_env_alive_until_its_restarts_are_used_up() -> None:
    # Episode 0 is fine and episode 1 crashes; a new env begins with episode 0 again.
    kept = Kept(script=((1, "terminated"), (2, "terminated")), faults={(1, 1): "raise"})
    manager = BaseEnvManager(kept.env_fn(1), dict(max_env_restarts=7))
    manager.launch()

    with pytest.raises(EnvError, match="used up its 7 restarts.*max_env_restarts"):
        step_times(manager, 99)

    assert len(kept.envs) == 8


def test_a_lane_that_crashed_is_restored_exactly(tmp_path: Any) -> None:
    class Shaky(gymnasium.Wrapper[Any, Any, Any, Any]):
        def step(self, action: Any) -> Any:
            mark = tmp_path / "struck"
            if not mark.exists():
                mark.touch()
                raise ValueError("once")
            return super().step(action)

    def env_fn() -> Any:
        return Shaky(gymnasium.make("CartPole-v1"))

    manager = BaseEnvManager([env_fn])
    manager.launch()
    step_times(manager, 5)

    other = BaseEnvManager([env_fn])
    other.load_state_dict(manager.state_dict())

    assert other.lanes_lost == []
    assert np.array_equal(other.obs, manager.obs)


def test_state_of_a_manager_that_was_not_launched_keeps_its_seeds() -> None:
    manager = BaseEnvManager(Kept().env_fn(1))
    manager.seed(42)
    kept = Kept()
    other = BaseEnvManager(kept.env_fn(1))

    other.load_state_dict(manager.state_dict())
    other.launch()

    assert kept.envs[0].resets == [42]


def test_a_first_observation_of_another_shape_or_a_reward_that_is_no_number_is_refused() -> None:
    class Wrong(EchoEnv):
        def reset(self, **kwargs: Any) -> Any:
            return np.zeros(7), {}

    class Unpaid(EchoEnv):
        def step(self, action: Any) -> Any:
            return np.zeros(1), np.zeros(1), False, False, {}

    for env, said in (
        (Wrong, r"first observation of env 0 has shape \(7,\).*\(1,\)"),
        (Unpaid, r"shape \(1,\), expected one number"),
    ):
        manager = BaseEnvManager([functools.partial(env, spaces.Discrete(2))])
        with pytest.raises(EnvError, match=said):
            manager.launch()
            step_times(manager, 1)


def test_a_manager_without_envs_is_refused() -> None:
    with pytest.raises(EnvError, match="at least one env"):
        BaseEnvManager([])


def test_envs_already_made_are_closed_if_one_cannot_be_made() -> None:
    kept = Kept()

    def broken() -> Any:
        raise ValueError("no such world")

    with pytest.raises(EnvError, match="cannot be made: ValueError: no such world"):
        BaseEnvManager([*kept.env_fn(2), broken])

    assert [env.is_closed for env in kept.envs] == [True, True]


def test_an_env_that_cannot_be_closed_keeps_no_other_open(caplog: pytest.LogCaptureFixture) -> None:
    class Stuck(ScriptedEnv):
        def close(self) -> None:
            raise OSError("stuck")

    kept = Kept()
    manager = BaseEnvManager([Stuck, *kept.env_fn(1)])

    manager.close()

    assert kept.envs[0].is_closed
    assert "closing env 0 failed: OSError: stuck" in caplog.text


def test_values_that_no_manager_can_use_are_named() -> None:
    for key, value in [("nonfinite", "ignore"), ("reseed_after", -1), ("max_env_restarts", -1), ("step_timeout_s", 0)]:
        cfg = {**BaseEnvManager.default_config(), key: value}

        assert [path for path, _ in faults(BaseEnvManager, cfg)] == [key]
