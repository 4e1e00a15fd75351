"""gym_hybrid's envs: how they move, what they reward, and when they end."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import pytest

from ding_like.envs import make_env
from ding_like.envs.check import check_env
from dizoo.gym_hybrid.envs.field import ACCELERATE, BRAKE, TURN, FieldEnv, HardMoveEnv, MovingEnv, SlidingEnv
from dizoo.gym_hybrid.envs.gym_hybrid_env import GymHybridEnv

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
