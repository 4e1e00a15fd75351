"""What the vector env manager does with vectorised entry points."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from ding_like.envs import EnvFactory
from ding_like.envs.manager.gym_vector import GymVectorEnvManager
from ding_like.errors import ConfigError, EnvError

CARTPOLE = dict(type="gymnasium", env_id="CartPole-v1")


class SilentVectorEnv(CartPoleVectorEnv):
    """Vector env without metadata on how ended lanes are reset."""

    metadata: dict[str, Any] = {"render_modes": []}


class CrashingVectorEnv(CartPoleVectorEnv):
    """Crash at the first step after every `calm` steps of the process."""

    taken = 0
    calm = 7

    def step(self, action: Any) -> Any:
        CrashingVectorEnv.taken += 1
        if CrashingVectorEnv.taken % self.calm == 0:
            raise ValueError("vector crash")
        return super().step(action)


@pytest.fixture
def register() -> Iterator[Any]:
    """Return a function that registers a vectorised entry point under a test's id."""
    ids: list[str] = []

    def add(entry: Any) -> dict[str, Any]:
        ids.append(f"DingTest{len(ids)}-v0")
        gymnasium.register(
            ids[-1],
            entry_point="gymnasium.envs.classic_control.cartpole:CartPoleEnv",
            vector_entry_point=entry,
            max_episode_steps=30,
        )
        return dict(type="gymnasium", env_id=ids[-1])

    yield add
    for env_id in ids:
        del gymnasium.registry[env_id]


def make(cfg: dict[str, Any], num: int = 3, **manager_cfg: Any) -> GymVectorEnvManager:
    return GymVectorEnvManager([EnvFactory(cfg) for _ in range(num)], manager_cfg)


def test_the_vectorised_entry_point_is_taken_with_the_ids_time_limit(register: Any) -> None:
    manager = make(register(CartPoleVectorEnv), num=1)
    manager.seed(0)
    manager.launch()

    ends = []
    for count in range(1, 200):
        # Push towards where the pole falls: the episode goes on until the time limit.
        obs = manager.obs
        lanes = np.flatnonzero(manager.ready)
        batch = manager.step(lanes, (obs[lanes, 2] + obs[lanes, 3] > 0).astype(np.int64))
        if batch.truncated.any():
            ends.append(count)

    # 30 steps, and one dummy step before each following episode.
    assert ends == [30, 61, 92, 123, 154, 185]
    assert not manager.lane_seeds


def test_dummy_steps_are_no_transitions() -> None:
    manager = make(CARTPOLE, num=4)
    manager.seed(3)
    manager.launch()
    rng = np.random.default_rng(0)
    by_hand = gymnasium.make_vec("CartPole-v1", num_envs=4, vectorization_mode="vector_entry_point")
    seeds = [3, 4, 5, 6]
    by_hand.reset(seed=int(np.random.SeedSequence(seeds).generate_state(1)[0] % (2**31 - 1)))

    was_over = np.zeros(4, bool)
    num_dummies = 0
    for _ in range(300):
        actions = rng.integers(2, size=4)
        lanes = np.flatnonzero(manager.ready)
        assert lanes.tolist() == np.flatnonzero(~was_over).tolist()
        batch = manager.step(lanes, actions[lanes])
        obs, reward, terminated, truncated, _ = by_hand.step(actions)

        assert np.array_equal(batch.next_obs, obs[lanes])
        assert np.array_equal(batch.reward, reward[lanes]) and (batch.reward == 1).all()
        assert np.array_equal(batch.terminated, terminated[lanes])
        num_dummies += 4 - len(lanes)
        was_over = terminated | truncated

    assert num_dummies > 20


def test_a_vector_env_with_one_generator_loses_its_lanes_on_resume() -> None:
    manager = make(CARTPOLE)
    manager.launch()
    manager.step(np.arange(3), np.zeros(3, np.int64))

    other = make(CARTPOLE)
    other.load_state_dict(manager.state_dict())

    assert other.lanes_lost == [0, 1, 2]
    assert other.ready.all()


def test_a_vector_env_with_one_generator_cannot_reset_a_single_lane() -> None:
    manager = make(CARTPOLE)
    manager.launch()

    with pytest.raises(EnvError, match="all its lanes or none"):
        manager.reset(np.array([1]))


def test_a_vector_env_takes_no_options() -> None:
    manager = make(CARTPOLE)
    manager.launch()

    with pytest.raises(EnvError, match="manager type 'base'"):
        manager.reset(options={0: {"low": 0.0}})


def test_a_lane_that_is_not_ready_cannot_be_stepped() -> None:
    manager = make(CARTPOLE, num=1)
    manager.launch()
    while manager.ready.all():
        manager.step(np.arange(1), np.zeros(1, np.int64))

    with pytest.raises(EnvError, match=r"lanes \[0\] are not ready"):
        manager.step(np.arange(1), np.zeros(1, np.int64))


def test_a_vector_env_that_does_not_say_how_it_resets_is_refused(register: Any) -> None:
    cfg = register(SilentVectorEnv)

    with pytest.warns(UserWarning, match="AutoresetMode"), pytest.raises(EnvError, match="autoreset_mode to one of"):
        make(cfg)


def test_the_config_may_say_how_a_silent_vector_env_resets(register: Any) -> None:
    cfg = register(SilentVectorEnv)
    with pytest.warns(UserWarning, match="AutoresetMode"):
        manager = make(cfg, num=1, autoreset_mode="NextStep")
    manager.launch()

    while manager.ready.all():
        manager.step(np.arange(1), np.zeros(1, np.int64))

    assert len(manager.step(np.zeros(0, np.int64), np.zeros(0)).lanes) == 0
    assert manager.ready.all()


def test_a_mode_that_contradicts_the_vector_env_is_refused() -> None:
    with pytest.raises(ConfigError, match="'Disabled', but .* 'NextStep'"):
        make(CARTPOLE, autoreset_mode="Disabled")


def test_an_unknown_mode_is_refused() -> None:
    cfg = {**GymVectorEnvManager.default_config(), "autoreset_mode": "sometimes"}

    assert [path for path, _ in GymVectorEnvManager.check_config(cfg)] == ["autoreset_mode"]
    with pytest.raises(ConfigError, match="'sometimes'.*NextStep"):
        make(CARTPOLE, autoreset_mode="sometimes")


def test_a_crash_of_the_vector_env_drops_every_open_episode(
    register: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(CrashingVectorEnv, "taken", 0)
    manager = make(register(CrashingVectorEnv))
    manager.launch()
    for _ in range(6):
        manager.step(np.arange(3), np.arange(3) % 2)

    batch = manager.step(np.arange(3), np.arange(3) % 2)

    assert batch.lanes.tolist() == [] and batch.dropped.tolist() == [0, 1, 2]
    assert "the vector env broke: ValueError: vector crash" in caplog.text
    assert len(manager.step(np.arange(3), np.arange(3) % 2).lanes) == 3


def test_a_vector_env_in_a_crash_loop_ends_the_run(register: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CrashingVectorEnv, "taken", 0)
    monkeypatch.setattr(CrashingVectorEnv, "calm", 2)
    manager = make(register(CrashingVectorEnv))
    manager.launch()

    with pytest.raises(EnvError, match="the vector env broke.*5 times"):
        for _ in range(20):
            manager.step(np.arange(3), np.zeros(3, np.int64))


@pytest.mark.parametrize("extra", [dict(wrappers=[dict(type="TimeAwareObservation")]), dict(render_mode="rgb_array")])
def test_what_the_entry_point_knows_nothing_of_takes_single_envs(extra: dict[str, Any]) -> None:
    manager = make({**CARTPOLE, **extra})

    manager.launch()

    assert manager.lane_seeds


def test_envs_of_different_configs_take_single_envs() -> None:
    manager = GymVectorEnvManager([EnvFactory(CARTPOLE), EnvFactory({**CARTPOLE, "max_episode_steps": 7})])

    assert manager.lane_seeds
