"""Envs of our own and of gymnasium-robotics: BitFlip, gym_hybrid, FetchReach, and how they move, reward and end."""

from __future__ import annotations

import importlib.util
import math
from typing import Any

import gymnasium
import numpy as np
import pytest

from ding_like.envs import check_env, make_env
from ding_like.errors import ConfigError
from ding_like.worker.replay_buffer.hindsight import GoalRules
from dizoo.bitflip.envs import BitFlip
from dizoo.gym_hybrid.envs.field import ACCELERATE, BRAKE, TURN, FieldEnv, HardMoveEnv, MovingEnv, SlidingEnv
from dizoo.gym_hybrid.envs.gym_hybrid_env import GymHybridEnv

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


IDS = ["Moving-v0", "Sliding-v0", "HardMove-v0"]


def env_of(env_id: str, **keys: Any) -> gymnasium.Env[Any, Any]:
    return make_env(
        dict(type="gym_hybrid", import_names=["dizoo.gym_hybrid.envs.gym_hybrid_env"], env_id=env_id, **keys)
    )


def placed(env: FieldEnv, position: tuple[float, float], target: tuple[float, float], direction: float = 0.0) -> None:
    """Begin an episode with everything in its place."""
    env.reset(seed=0)
    env.position, env.target = np.array(position), np.array(target)
    env._distance = env._distance_now()
    if isinstance(env, MovingEnv):
        env.direction = direction


def do(env: FieldEnv, choice: int, *args: float) -> tuple[np.ndarray, float, bool]:
    size = env.parameter_mask.shape[1]
    padded = np.array([*args, *[0.0] * (size - len(args))])
    obs, reward, terminated, truncated, _ = env.step({"action_type": choice, "action_args": padded})
    assert not truncated
    return obs, reward, terminated


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("act_scale", [False, True])
def test_they_keep_the_rules(env_id: str, act_scale: bool) -> None:
    findings = check_env(lambda: env_of(env_id, act_scale=act_scale, render_mode="rgb_array"), num_steps=500)

    assert not [finding for finding in findings if finding.level in ("fault", "warning")]


def test_the_observation_of_a_drive() -> None:
    env = MovingEnv()
    placed(env, (0.0, 0.0), (0.5, 0.0), direction=math.pi / 2)

    do(env, TURN, 0.0, -1.0)  # to the right, by a right angle
    obs, reward, _ = do(env, ACCELERATE, 0.5, 0.7)  # 0.7 belongs to turning

    x = 0.005 * 0.25
    np.testing.assert_allclose(obs, [x, 0, 0.25, 1, 0, 0.5, 0, 0.5 - x, 0, 2 / 200], atol=1e-6)
    assert reward == pytest.approx(x - 0.001)


def test_the_goal_is_to_stop_inside_and_pays_one() -> None:
    env = MovingEnv()
    placed(env, (0.0, 0.0), (0.05, 0.0))
    do(env, ACCELERATE, 0.4)

    _, _, is_over = do(env, BRAKE)
    obs, reward, is_over_then = do(env, BRAKE)

    assert not is_over and is_over_then
    assert reward == pytest.approx(1 - 0.001)  # the last brake does not move it
    assert obs[2] == 0.0 and obs[8] == 1.0


def test_to_leave_and_to_take_too_long_cost_one() -> None:
    env = MovingEnv(max_step=5)
    placed(env, (0.999, 0.0), (0.0, 0.0))
    *_, reward, is_over = do(env, ACCELERATE, 1.0)
    assert is_over and reward == pytest.approx(-1 - 0.0025 - 0.001)

    placed(env, (0.5, 0.0), (0.0, 0.0))
    ends = [do(env, BRAKE) for _ in range(5)]
    assert [end for _, _, end in ends] == [False] * 4 + [True]
    assert ends[-1][1] == pytest.approx(-1 - 0.001)


def test_who_slides_goes_on_the_old_way() -> None:
    for make, expected in ((MovingEnv, [0.0, 0.0025]), (SlidingEnv, [0.0025, 0.0])):
        env = make()
        placed(env, (0.0, 0.0), (0.5, 0.5))
        do(env, ACCELERATE, 1.0)
        before = env.position

        do(env, TURN, 0.0, 1.0)

        np.testing.assert_allclose(env.position - before, expected, atol=1e-9)


def test_sliding_brakes_along_its_way() -> None:
    env = SlidingEnv()
    placed(env, (0.0, 0.0), (0.5, 0.5))
    do(env, ACCELERATE, 1.0)
    do(env, TURN, 0.0, 1.0)

    obs, _, _ = do(env, BRAKE)

    assert obs[2] == pytest.approx(0.4)
    np.testing.assert_allclose(env.velocity, [0.4, 0.0], atol=1e-9)


def test_actuators_move_where_they_are_on() -> None:
    env = HardMoveEnv(num_actuators=4)
    placed(env, (0.0, 0.0), (0.5, 0.5))

    do(env, 0b0011, 1.0, -0.5, 1.0, 1.0)  # the first two, which look to the right and up

    np.testing.assert_allclose(env.position, [0.1, -0.05], atol=1e-9)
    assert env.parameter_mask.shape == (16, 4) and env.parameter_mask[0b0011].tolist() == [True, True, False, False]


def test_scaled_parameters_have_the_same_reach() -> None:
    wide, scaled = MovingEnv(), MovingEnv(act_scale=True)
    for env, argument in ((wide, 0.75), (scaled, 0.5)):  # -1 to 1 for 0 to 1
        placed(env, (0.0, 0.0), (0.5, 0.0))
        do(env, ACCELERATE, argument)

    assert wide.speed == scaled.speed == 0.375


def test_pictures_show_agent_and_target() -> None:
    for env_id in IDS:
        env = env_of(env_id, render_mode="rgb_array")
        env.reset(seed=1)

        picture = env.render()

        assert picture.shape == (200, 200, 3) and picture.dtype == np.uint8
        assert len(np.unique(picture.reshape(-1, 3), axis=0)) >= 3


def test_the_number_of_actuators_is_a_key() -> None:
    env = env_of("HardMove-v0", num_actuators=3)

    assert env.action_space.num_choices == 8 and env.action_space.num_parameters == 3
    checked = dict(GymHybridEnv.check_config({**GymHybridEnv.config, "num_actuators": 3}))
    assert list(checked) == ["num_actuators"] and "HardMove-v0's" in checked["num_actuators"]


needs_robotics = pytest.mark.skipif(
    importlib.util.find_spec("gymnasium_robotics") is None, reason="needs gymnasium_robotics"
)


@needs_robotics
def test_fetchreach_is_made_by_its_id_and_moves() -> None:
    env = make_env({"type": "gymnasium", "env_id": "FetchReach-v4"})
    try:
        before, _ = env.reset(seed=0)
        for _ in range(10):
            obs, *_ = env.step(np.array([1, 0, 0, 0], np.float32))
        again, _ = env.reset(seed=0)
    finally:
        env.close()

    assert obs["achieved_goal"][0] > before["achieved_goal"][0] + 0.05
    assert (again["desired_goal"] == before["desired_goal"]).all()
    # The welds that drive the hand are set back with the rest.
    assert np.allclose(again["achieved_goal"], before["achieved_goal"], atol=1e-3)


@needs_robotics
@pytest.mark.parametrize("env_id", ["FetchReach-v4", "FetchReachDense-v4"])
def test_hindsight_takes_its_goals_and_rewards(env_id: str) -> None:
    rules = GoalRules(lambda: make_env({"type": "gymnasium", "env_id": env_id}))
    try:
        goals = np.array([[1.3, 0.7, 0.5], [1.4, 0.7, 0.5]], np.float32)
        reward, terminated = rules.reward(goals, goals[::-1]), rules.terminated(goals, goals)
    finally:
        rules.close()

    assert reward == pytest.approx([-0.1, -0.1] if "Dense" in env_id else [-1.0, -1.0])
    assert terminated is not None and not terminated.any()
