"""What `env_wrapper='default'` and DI-engine's wrappers by name put around an env."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from ding_like.envs import DingEnvWrapper, affine_transform, get_default_wrappers
from ding_like.envs import env_wrappers as theirs
from ding_like.errors import ConfigError

BREAKOUT: dict[str, Any] = dict(env_id="ALE/Breakout-v5", kwargs=dict(frameskip=1, full_action_space=False))


@pytest.mark.parametrize("name", ["default", "mujoco_default", "gym_hybrid_default"])
def test_default_reports_the_return_and_changes_nothing_else(name: str) -> None:
    env = DingEnvWrapper(cfg=dict(env_id="CartPole-v1", env_wrapper=name))
    env.seed(0)
    env.reset()

    timestep = env.step(1)
    steps = 1
    while not timestep.done:
        timestep = env.step(1)
        steps += 1

    assert timestep.info["eval_episode_return"] == steps and env.observation_space.shape == (4,)


@pytest.mark.parametrize("caller", ["collector", "evaluator"])
def test_atari_default_shows_grey_frames(caller: str) -> None:
    env = DingEnvWrapper(cfg=dict(BREAKOUT, env_wrapper="atari_default"), caller=caller)
    env.seed(0)

    obs = np.asarray(env.reset())

    assert obs.shape == (4, 84, 84) and obs.dtype == np.uint8
    env.close()


def test_an_evaluator_plays_whole_games_for_their_own_score() -> None:
    training = [each["type"] for each in get_default_wrappers("atari_default", caller="collector")]
    judging = [each["type"] for each in get_default_wrappers("atari_default", caller="evaluator")]

    assert set(training) - set(judging) == {"episodic_life", "clip_reward"}


def test_a_lost_life_ends_an_episode_and_the_game_goes_on() -> None:
    env = theirs.EpisodicLifeWrapper(DingEnvWrapper(cfg=BREAKOUT).gymnasium_env)
    env.reset(seed=0)
    game: Any = env.unwrapped

    terminated, steps = False, 0
    while not terminated and steps < 3000:
        _, _, terminated, _, _ = env.step(1)  # FIRE: the ball is served and never returned
        steps += 1
    lives = game.ale.lives()
    env.reset()
    lives_after = game.ale.lives()
    env.reset(seed=1)

    assert terminated and 0 < lives == lives_after < game.ale.lives()  # a seed begins a new game
    env.close()


def test_unknown_defaults_and_callers_are_errors() -> None:
    with pytest.raises(ConfigError, match="atari_default"):
        DingEnvWrapper(cfg=dict(env_id="CartPole-v1", env_wrapper="atary_default"))
    with pytest.raises(ConfigError, match="'evaluator'"):
        get_default_wrappers("default", caller="tester")


def test_act_scale_stretches_actions_to_the_range_of_the_env() -> None:
    env = DingEnvWrapper(cfg=dict(env_id="Pendulum-v1", env_wrapper="default", act_scale=True))

    assert (env.action_space.low, env.action_space.high) == (-1.0, 1.0)


def test_arguments_of_wrappers_go_by_di_engines_names() -> None:
    wrappers = [dict(type="time_limit", kwargs=dict(max_limit=3)), dict(type="frame_stack", n_frames=2)]
    env = DingEnvWrapper(cfg=dict(env_id="Pendulum-v1", env_wrapper=wrappers))
    env.seed(0)

    obs = np.asarray(env.reset())
    dones = [env.step(env.random_action()).done for _ in range(3)]

    assert obs.shape == (2, 3) and dones == [False, False, True]


def test_wrappers_by_di_engines_class_names_prepare_pictures() -> None:
    made = DingEnvWrapper(cfg=BREAKOUT).gymnasium_env
    env = theirs.MaxAndSkipWrapper(theirs.NoopResetWrapper(made, noop_max=3), skip=4)
    env = theirs.FrameStackWrapper(theirs.ScaledFloatFrameWrapper(theirs.WarpFrameWrapper(env, size=42)), n_frames=2)

    obs, _ = env.reset(seed=0)
    obs, *_ = env.step(0)

    assert obs.shape == (2, 42, 42) and obs.dtype == np.float32 and 0 <= obs.min() and obs.max() <= 1
    env.close()


class Rewarding(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return np.zeros(1, np.float32), 2.0, self.time == 5, False, {}


def test_repeated_actions_add_up_their_rewards_until_the_end() -> None:
    env = theirs.ActionRepeatWrapper(Rewarding(), action_repeat=3)
    env.reset()

    first, last = env.step(0), env.step(0)

    assert (first[1], first[2]) == (6.0, False) and (last[1], last[2]) == (4.0, True)


def test_affine_transform_maps_minus_one_and_one_to_the_ends() -> None:
    data = np.array([-2.0, -1.0, 0.0, 1.0])

    assert affine_transform(data, min_val=-4.0, max_val=2.0).tolist() == [-4.0, -4.0, -1.0, 2.0]
    assert affine_transform(data, action_clip=False, alpha=3.0, beta=1.0).tolist() == [-5.0, -2.0, 1.0, 4.0]
    with pytest.raises(ConfigError, match="min_val"):
        affine_transform(data)
