"""Suites under DI-engine's types: grid worlds, partial observation, pistons, and bodies that several agents move."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ding_like.entry import serial_pipeline_onpolicy
from ding_like.envs.gymnasium_env import newest_id
from ding_like.envs.wrappers import wrap
from ding_like.errors import ConfigError, EnvError
from tests.envs.test_suites import faults, make, needs, section

# --- grid worlds


def test_the_newest_version_of_an_env_is_the_one_of_most_versions() -> None:
    assert newest_id("CartPole") == "CartPole-v1" and newest_id("FrozenLake") == "FrozenLake-v1"


def test_ids_of_old_are_made_as_the_newest() -> None:
    for suite, env_id, name in [
        ("cliffwalking", "CliffWalking-v0", "CliffWalking"),
        ("cliffwalking", "CliffWalking", "CliffWalking"),
        ("taxi", "Taxi-v3", "Taxi"),
    ]:
        env = make(suite, env_id=env_id)

        assert env.spec.id == newest_id(name)
        env.close()


def walk(env: Any, actions: str) -> list[tuple[float, bool, bool]]:
    """Return (reward, terminated, truncated) of steps up, right, down and left."""
    order = "urdl" if "Cliff" in env.spec.id else "ldru"
    env.reset(seed=0)
    return [tuple(env.step(np.int64(order.index(each)))[1:4]) for each in actions]


def test_the_shortest_way_along_the_cliff_returns_minus_13() -> None:
    env = make("cliffwalking")
    steps = walk(env, "u" + "r" * 11 + "d")

    assert sum(reward for reward, *_ in steps) == -13 and steps[-1][1:] == (True, False)
    env.close()


def test_a_walk_into_a_wall_ends_by_the_time_limit() -> None:
    env = make("cliffwalking")
    steps = walk(env, "l" * 300)

    assert steps[-1][1:] == (False, True) and not any(over or cut for _, over, cut in steps[:-1])
    env.close()


def test_ice_that_is_not_slippery_is_crossed_as_planned() -> None:
    env = make("frozen_lake", is_slippery=False, map_name="4x4")
    steps = walk(env, "ddrrdr")

    assert [reward for reward, *_ in steps] == [0, 0, 0, 0, 0, 1] and steps[-1][1:] == (True, False)
    env.close()


def test_the_map_of_a_lake_may_be_chosen_or_drawn() -> None:
    for keys, size in [
        (dict(), 16), (dict(map_name="8x8"), 64), (dict(env_id="FrozenLake8x8-v1"), 64), (dict(desc=["SF", "FG"]), 4)
    ]:  # fmt: skip
        env = make("frozen_lake", **keys)

        assert env.observation_space == spaces.Discrete(size)
        env.close()


def test_slippery_ice_is_the_default() -> None:
    env = make("frozen_lake")
    ends = set()
    for seed in range(20):
        env.reset(seed=seed)
        ends.add(int(env.step(2)[0]))

    assert ends == {0, 1, 4}
    env.close()


def test_maps_that_are_none_are_refused() -> None:
    assert "env.map_name" in faults("frozen_lake", map_name="5x5")
    for rows in (["SF", "F"], ["SX"], ["FG"], []):
        assert "env.desc" in faults("frozen_lake", desc=rows)


def test_masked_taxis_take_actions_that_change_the_state_and_no_wrong_stop() -> None:
    env = make("taxi", action_mask=True)
    plain = gymnasium.make(newest_id("Taxi"))
    rng = np.random.default_rng(0)
    obs, _ = env.reset(seed=0)
    plain.reset(seed=0)

    for _ in range(100):
        assert env.observation_space.contains(obs) and obs["action_mask"].any()
        before = obs["observation"]
        action = rng.choice(np.flatnonzero(obs["action_mask"]))
        obs, reward, terminated, truncated, _ = env.step(action)
        theirs, expected, *_ = plain.step(action)
        assert obs["observation"] == theirs != before and reward == expected != -10
        if terminated or truncated:
            break
    env.close()
    plain.close()


def test_a_mask_that_no_env_gives_is_an_error() -> None:
    env = make("frozen_lake", wrappers=["info_mask"])

    with pytest.raises(EnvError, match="info\\['action_mask'\\]"):
        env.reset(seed=0)
    with pytest.raises(ConfigError, match="Discrete actions"):
        wrap(gymnasium.make("Pendulum-v1"), ["info_mask"])
    env.close()


# --- partial observation


def disturbed(**keys: Any) -> Any:
    whole = dict(noise_scale=0.0, zero_p=0.0, reward_noise=0.0, duplicate_p=0.0)
    return make("pomdp", env_id="CartPole-v1", frame_stack=1, pomdp={**whole, **keys})


def episode(env: Any, steps: int) -> tuple[np.ndarray[Any, Any], list[float]]:
    """Return the observations [steps + 1, O] and rewards of CartPole kept up for a while by turns."""
    seen, rewards = [env.reset(seed=0)[0]], []
    for step in range(steps):
        obs, reward, *_ = env.step(np.int64(step % 2))
        seen.append(obs)
        rewards.append(float(reward))
    env.close()
    return np.stack(seen), rewards


def test_without_disturbance_the_env_is_seen_as_it_is() -> None:
    seen, rewards = episode(disturbed(), 20)
    plain, _ = episode(gymnasium.make("CartPole-v1"), 20)

    assert (seen == plain).all() and rewards == [1.0] * 20


def test_noise_has_the_deviation_that_the_config_gives() -> None:
    plain, _ = episode(disturbed(), 20)
    (seen, rewards), (again, _) = (episode(disturbed(noise_scale=0.5, reward_noise=0.25), 20) for _ in range(2))

    assert (seen == again).all(), "noise comes from the env's own generator"
    assert 0.35 < (seen - plain).std() < 0.65 and 0.1 < np.std(rewards) < 0.4


def test_numbers_are_lost_and_steps_repeat_what_was_shown() -> None:
    lost, _ = episode(disturbed(zero_p=0.5), 20)
    stuck, _ = episode(disturbed(duplicate_p=0.5), 20)

    assert 0.3 < (lost == 0).mean() < 0.7
    repeats = (stuck[1:] == stuck[:-1]).all(axis=1)
    assert 0.2 < repeats.mean() < 0.8
    assert (episode(disturbed(zero_p=1.0), 5)[0] == 0).all()
    assert (np.ptp(episode(disturbed(duplicate_p=1.0), 5)[0], axis=0) == 0).all()


def test_the_reported_return_is_that_of_the_env_without_noise() -> None:
    env = disturbed(reward_noise=1.0)
    env.reset(seed=0)
    steps, terminated = 0, False
    while not terminated:
        *_, terminated, _, info = env.step(0)
        steps += 1

    assert info["eval_episode_return"] == steps
    env.close()


def test_the_last_observations_stand_side_by_side() -> None:
    env = make("pomdp", env_id="CartPole-v1", frame_stack=3, pomdp=dict(noise_scale=0.0, zero_p=0.0, duplicate_p=0.0))
    first, _ = env.reset(seed=0)
    second, *_ = env.step(0)

    assert env.observation_space.shape == (12,) and (second[:8] == first[4:]).all()
    env.close()


@needs("ale_py")
def test_a_game_of_atari_is_the_bytes_of_its_memory() -> None:
    env = make("pomdp", env_id="Pong-ramNoFrameskip-v4", frame_stack=1, pomdp=dict(noise_scale=0.0, zero_p=0.0))
    obs, _ = env.reset(seed=0)

    assert env.spec.id == "PongNoFrameskip-v4" and env.unwrapped._frameskip == 4
    assert obs == pytest.approx(env.unwrapped.ale.getRAM() / 255)
    env.close()


def test_what_cannot_be_observed_in_part_is_refused() -> None:
    assert "env.use_ram" in faults("pomdp", use_ram=False)
    assert "env.pomdp.zero_p" in faults("pomdp", pomdp=dict(zero_p=1.5))
    assert "env.frame_stack" in faults("pomdp", frame_stack=0)
    with pytest.raises(ConfigError, match="vectors"):
        make("pomdp", env_id="FrozenLake-v1")


# --- pistons


class Pistons:
    """Stand-in for PettingZoo's pistonball, of which it has the spaces: agent i sees a square that is lit in step i."""

    possible_agents = ("piston_0", "piston_1")
    state_space = spaces.Box(0, 255, (560, 880, 3), np.uint8)

    def __init__(self, **kwargs: Any) -> None:
        self.kwargs = kwargs

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0, 255, (457, 120, 3), np.uint8)

    def action_space(self, agent: str) -> Any:
        return spaces.Box(-1, 1, (1,), np.float32) if self.kwargs["continuous"] else spaces.Discrete(3)

    def reset(self, seed: int | None = None) -> Any:
        self.time, self.agents = 0, list(self.possible_agents)
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions: Any) -> Any:
        self.time, self.given = self.time + 1, actions
        is_over = self.time == self.kwargs["max_cycles"]
        flags = [dict.fromkeys(self.possible_agents, each) for each in (False, is_over)]
        return self._seen(), dict.fromkeys(self.possible_agents, 1.5), *flags, {}

    def state(self) -> Any:
        return np.full((560, 880, 3), 51, np.uint8)

    def close(self) -> None: ...

    def _seen(self) -> Any:
        pictures = {agent: np.zeros((457, 120, 3), np.uint8) for agent in self.possible_agents}
        for place, agent in enumerate(self.possible_agents):
            if self.time == place:
                pictures[agent][20:40, 0:20] = 255
        return pictures


@pytest.fixture
def pistons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ding_like.envs.team.make_petting_zoo", lambda env_id, api, kwargs: Pistons(**kwargs))


def test_pistons_see_the_mean_grey_of_squares(pistons: None) -> None:
    env = make("petting_zoo_pistonball", n_pistons=2, max_cycles=2)
    first, _ = env.reset(seed=0)
    second, reward, terminated, truncated, _ = env.step(np.array([0, 2]))

    assert env.observation_space.contains(first) and env.observation_space.contains(second)
    lit = 6  # a row of 120 pixels has six squares
    assert first["agents"].shape == (2, 22 * 6) and np.flatnonzero(first["agents"][0]).tolist() == [lit]
    assert first["agents"][0, lit] == 1 and not first["agents"][1].any()
    assert not second["agents"][0].any() and np.flatnonzero(second["agents"][1]).tolist() == [lit]
    assert first["state"].shape == (28 * 44,) and first["state"] == pytest.approx(0.2)
    assert (reward, terminated, truncated) == (1.5, False, False) and env.step(np.array([1, 1]))[3]
    env.close()


def test_pistons_may_move_continuously(pistons: None) -> None:
    env = make("petting_zoo_pistonball", n_pistons=2, continuous_actions=True)
    env.reset(seed=0)
    env.step(np.array([0.5, -0.25], np.float32))

    assert env.action_space == spaces.Box(-1, 1, (2,), np.float32)
    assert {agent: given.tolist() for agent, given in env.unwrapped._env.given.items()} == {
        "piston_0": [0.5], "piston_1": [-0.25]
    }  # fmt: skip
    env.close()


def test_another_env_of_that_family_is_refused() -> None:
    assert "env.env_id" in faults("petting_zoo_pistonball", env_id="cooperative_pong_v5")


def test_without_pymunk_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if "pistonball" in name and name.startswith("pettingzoo")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pymunk", None)
    with pytest.raises(ConfigError, match='pip install "ding-like\\[butterfly\\]"'):
        make("petting_zoo_pistonball")


@needs("pymunk")
def test_the_pistons_of_petting_zoo_are_as_the_stand_in_has_them() -> None:
    env = make("petting_zoo_pistonball", n_pistons=5, max_cycles=2)
    first, _ = env.reset(seed=0)
    env.step(np.zeros(5, np.int64))

    assert env.observation_space.contains(first) and first["agents"].shape == (5, 132) and first["agents"].std() > 0
    assert env.step(np.zeros(5, np.int64))[3]
    env.close()


# --- bodies that several agents move


@needs("gymnasium_robotics")
def test_a_split_body_moves_as_gymnasiums_does() -> None:
    env = make("mamujoco", scenario="HalfCheetah-v2", agent_conf="2x3", episode_limit=3)
    plain = gymnasium.make("HalfCheetah-v5", max_episode_steps=3)
    obs, _ = env.reset(seed=0)
    theirs, _ = plain.reset(seed=0)
    joints = [plain.unwrapped.model.joint(name).id for name in ("bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot")]

    assert joints == sorted(joints) and env.action_space.shape == (6,)
    for step in range(3):
        assert obs["state"] == pytest.approx(theirs.astype(np.float32)) and env.observation_space.contains(obs)
        action = np.linspace(-1, 1, 6, dtype=np.float32) * (step + 1) / 3
        obs, reward, terminated, truncated, _ = env.step(action)
        theirs, expected, *ends, _ = plain.step(action)
        assert reward == pytest.approx(expected) and [terminated, truncated] == ends == [False, step == 2]
    env.close()
    plain.close()


@needs("gymnasium_robotics")
def test_agents_that_see_less_see_zeros_and_their_number() -> None:
    from gymnasium_robotics import mamujoco_v1

    env = make("mujoco_multi", scenario="Hopper", agent_conf="3x1", add_agent_id=True)
    alone = mamujoco_v1.parallel_env("Hopper", "3x1")
    obs, _ = env.reset(seed=2)
    theirs = list(alone.reset(seed=2)[0].values())

    assert [len(each) for each in theirs] == [8, 9, 8] and obs["agents"].shape == (3, 9 + 3)
    for row, own, number in zip(obs["agents"], theirs, np.eye(3), strict=True):
        expected = [*own, *[0.0] * (9 - len(own)), *number]
        assert row == pytest.approx(np.float32(expected))
    assert env.observation_space.contains(obs)
    env.close()
    alone.close()


@needs("gymnasium_robotics")
def test_agents_with_fewer_joints_have_actions_without_effect() -> None:
    from gymnasium_robotics import mamujoco_v1

    env = make("mamujoco", scenario="Humanoid", agent_conf="9|8")
    alone = mamujoco_v1.parallel_env("Humanoid", "9|8")
    env.reset(seed=2)
    alone.reset(seed=2)
    action = np.linspace(-0.4, 0.4, 18, dtype=np.float32)
    obs, reward, *_ = env.step(action)
    theirs, paid, *_ = alone.step({"agent_0": action[:9], "agent_1": action[9:17]})

    assert env.action_space.shape == (18,) and reward == pytest.approx(paid["agent_0"])
    for row, own in zip(obs["agents"], theirs.values(), strict=True):
        assert row[: len(own)] == pytest.approx(np.float32(own)) and not row[len(own) :].any()
    env.close()
    alone.close()


def test_splits_that_are_none_are_refused() -> None:
    assert "env.agent_conf" in faults("mamujoco", agent_conf="two")
    assert "env.agent_obsk" in faults("mamujoco", agent_obsk=-1)


@needs("gymnasium_robotics")
@pytest.mark.usefixtures("in_tmp", "no_pictures")
def test_one_policy_may_move_the_whole_team() -> None:
    env = dict(episode_limit=10, collector_env_num=2, evaluator_env_num=1)
    main = dict(exp_name="team", env=env, policy=dict(collect=dict(n_sample=64), learn=dict(epoch_per_collect=1)))
    create = dict(env={key: section("mamujoco")[key] for key in ("type", "import_names")}, policy=dict(type="ppo"))

    policy = serial_pipeline_onpolicy((main, create), max_env_step=64)

    assert policy.collect_mode.state_dict()["model"]


def test_the_chain_pays_at_both_ends() -> None:
    env = make("chain", n_states=5)
    right = env.unwrapped.right
    env.reset(seed=0)
    to_the_end = [env.step(right[state])[:4] for state in (1, 2, 3)]
    env.reset()
    to_the_left = [env.step(1 - right[state])[:4] for state in (1, *[0] * 13)]

    assert to_the_end == [(2, 0.0, False, False), (3, 0.0, False, False), (4, 1.0, True, False)]
    assert to_the_left == [*[(0, 0.001, False, False)] * 13, (0, 0.001, False, True)]
    assert set(make("chain").unwrapped.right) == {0, 1}
    with pytest.raises(ConfigError, match=r"env\.n_states is 2, expected 3 or more"):
        make("chain", n_states=2)


def test_the_last_action_and_reward_stand_beside_the_observation() -> None:
    env = make("chain", n_states=5, wrappers=["obs_plus_prev_action_reward"])
    right = int(env.unwrapped.right[1])
    first, _ = env.reset(seed=0)
    second, *_ = env.step(1 - right)
    third, *_ = env.step(1 - int(env.unwrapped.right[0]))

    assert first["obs"] == 1 and first["prev_action"].tolist() == [0, 0] and first["prev_reward_extrinsic"] == [0]
    assert second["obs"] == 0 and second["prev_action"].tolist() == [float(right), float(1 - right)]
    np.testing.assert_allclose(third["prev_reward_extrinsic"], [0.001])
    assert env.observation_space.contains(second) and env.observation_space["prev_action"].shape == (2,)
