"""BitFlip: its goals, its rewards in both forms, and goals that are judged many at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ding_like.envs import check_env, make_env
from ding_like.errors import ConfigError
from dizoo.bitflip.envs import BitFlip

CFG = dict(type="bitflip", import_names=["dizoo.bitflip.envs.bitflip_env"], n_bits=5)


def _flips(env: Any, obs: Any) -> list[int]:
    """Return the bits in which state and goal of a flat observation differ."""
    state, goal = np.split(obs, 2)
    return [int(bit) for bit in np.flatnonzero(state != goal)]


def test_each_action_flips_its_bit_of_the_state_and_nothing_else() -> None:
    env = make_env(CFG)
    before, _ = env.reset(seed=0)
    before = before.copy()

    after, *_ = env.step(2)

    assert [int(index) for index in np.flatnonzero(before != after)] == [2]
    assert before.dtype == np.float32 and before.shape == (10,)


def test_flipping_what_differs_ends_at_the_goal_with_a_return_of_one() -> None:
    env = make_env(CFG)

    for seed in range(20):
        obs, _ = env.reset(seed=seed)
        rewards = []
        flips = _flips(env, obs)
        for bit in flips:
            obs, reward, terminated, truncated, info = env.step(bit)
            rewards.append(float(reward))
        assert flips and terminated and not truncated and info["is_success"] == 1.0
        assert sum(rewards) == 1.0 == rewards[-1]


def test_an_episode_that_misses_the_goal_is_truncated_after_n_bits_steps() -> None:
    env = make_env(CFG)
    obs, _ = env.reset(seed=0)
    right = next(bit for bit in range(5) if bit not in _flips(env, obs))

    ends = [env.step(right)[1:4] for _ in range(5)]

    assert ends == [(0.0, False, False)] * 4 + [(0.0, False, True)]


def test_the_goal_form_has_three_parts_and_rewards_of_minus_one_until_the_goal() -> None:
    flat, goal_env = make_env(CFG), make_env({**CFG, "goal_env": True})
    flat_obs, _ = flat.reset(seed=4)
    obs, _ = goal_env.reset(seed=4)

    assert np.array_equal(np.concatenate([obs["achieved_goal"], obs["desired_goal"]]), flat_obs)
    assert np.array_equal(obs["observation"], obs["achieved_goal"])
    rewards = [float(goal_env.step(bit)[1]) for bit in _flips(flat, flat_obs)]
    assert rewards == [-1.0] * (len(rewards) - 1) + [0.0]


@pytest.mark.parametrize("goal_env", [False, True])
def test_goals_are_judged_many_at_a_time_as_one_by_one(goal_env: bool) -> None:
    env: Any = make_env({**CFG, "goal_env": goal_env}).unwrapped
    rng = np.random.default_rng(0)
    achieved, desired = rng.integers(2, size=(2, 300, 5)).astype(np.float32)

    reward = env.compute_reward(achieved, desired, {})
    terminated = env.compute_terminated(achieved, desired, {})

    assert env.goal_size == 5 and reward.dtype == np.float32
    reached = [list(a) == list(d) for a, d in zip(achieved, desired, strict=True)]
    assert 0 < sum(reached) < 300
    assert terminated.tolist() == reached
    assert reward.tolist() == [is_reached - float(goal_env) for is_reached in reached]


def test_the_first_state_is_never_the_goal() -> None:
    env = BitFlip(n_bits=1)

    states = [env.reset(seed=seed)[0] for seed in range(50)]

    assert all(state != goal for state, goal in states)


@pytest.mark.parametrize("goal_env", [False, True])
def test_the_env_checker_finds_no_fault(goal_env: bool) -> None:
    found = check_env(lambda: make_env({**CFG, "goal_env": goal_env}))

    assert [finding for finding in found if finding.level != "note"] == []


def test_a_picture_shows_state_above_goal() -> None:
    env: Any = make_env({**CFG, "render_mode": "rgb_array"})
    obs, _ = env.reset(seed=1)
    picture = env.render()

    height, width, _ = picture.shape
    assert picture.dtype == np.uint8 and width / height == 5 / 2
    cell = height // 2
    shown = picture[cell // 2 :: cell, cell // 2 :: cell, 0] > 128
    assert np.array_equal(shown.reshape(-1), obs > 0)


def test_no_bits_are_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"env\.n_bits is 0"):
        make_env({**CFG, "n_bits": 0})
