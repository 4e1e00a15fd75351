"""How a gymnasium env looks in DI-engine's style, in its wrappers too, and how such an env looks as gymnasium's."""

from __future__ import annotations

import importlib.util
import logging
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ding_like.envs import (
    BaseEnv,
    BaseEnvTimestep,
    DiEngineStyleEnv,
    DingEnvWrapper,
    affine_transform,
    get_default_wrappers,
    make_env,
)
from ding_like.envs import env_wrappers as theirs
from ding_like.envs.di_engine import BaseEnvManager as DictEnvManager
from ding_like.envs.manager.base import BaseEnvManager
from ding_like.errors import ConfigError, EnvError
from ding_like.utils import log
from tests.envs.bad_envs import GoodEnv
from tests.envs.my_envs import DiEngineStyleWalk
from tests.envs.scripted_env import ScriptedEnv, Told, action_of

needs_pillow = pytest.mark.skipif(importlib.util.find_spec("PIL") is None, reason="needs pillow (extra viz)")

CARTPOLE = dict(env_id="CartPole-v1", collector_env_num=3, evaluator_env_num=2)


class Optional(ScriptedEnv):
    """Scripted env that records the options of its last reset."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.options = options
        return super().reset(seed=seed)


def film_ms(path: Any) -> int:
    """Return how long a film takes; frames that are equal are one that stays longer."""
    from PIL import Image, ImageSequence

    with Image.open(path) as film:
        return sum(frame.info["duration"] for frame in ImageSequence.Iterator(film))


def play(env: DingEnvWrapper, num: int = 10) -> list[Any]:
    """Return the observations of one short episode with equal actions."""
    return [env.reset(), *(env.step(1).obs for _ in range(num))]


def until_over(env: DingEnvWrapper) -> BaseEnvTimestep:
    env.reset()
    while True:
        timestep = env.step(0)
        if timestep.done:
            return timestep


def test_a_timestep_has_the_seeds_form() -> None:
    env = DingEnvWrapper(ScriptedEnv())

    obs = env.reset()
    timestep = env.step(np.array(1))

    assert obs.shape == (4,)
    assert isinstance(env, BaseEnv) and isinstance(timestep, BaseEnvTimestep)
    assert timestep.reward.dtype == np.float32 and timestep.reward.tolist() == [1.0]
    assert timestep.done is False


def test_a_return_that_the_env_reports_stays() -> None:
    env = DingEnvWrapper(ScriptedEnv(), dict(env_wrapper=[dict(type="clip_reward")]))

    timestep = until_over(env)

    assert timestep.info["eval_episode_return"] == 1 + 2 + 3


def test_the_two_ways_to_end_stay_apart_in_info() -> None:
    for how, is_cut in [("terminated", False), ("truncated", True)]:
        timestep = until_over(DingEnvWrapper(ScriptedEnv(script=((2, how),))))

        assert timestep.info["eval_episode_return"] == 1 + 2
        assert timestep.info["TimeLimit.truncated"] is is_cut


def test_the_envs_own_info_is_not_written_into() -> None:
    class Keeping(ScriptedEnv):
        def step(self, action: Any) -> Any:
            answer = super().step(action)
            self.last_info = answer[4]
            return answer

    inner = Keeping(script=((1, "terminated"),))

    until_over(DingEnvWrapper(inner))

    assert inner.last_info == {"at": 1}


def test_it_is_made_from_an_id_with_arguments() -> None:
    env = DingEnvWrapper(cfg=dict(env_id="CartPole-v1", kwargs=dict(sutton_barto_reward=True), max_episode_steps=2))

    env.reset()
    rewards = [float(env.step(0).reward[0]) for _ in range(2)]

    assert rewards == [0.0, 0.0]
    assert isinstance(env.action_space, spaces.Discrete)
    assert env.reward_space.shape == (1,)
    assert env.action_space.contains(env.random_action())
    env.close()


def test_wrappers_are_functions_names_or_dicts() -> None:
    wrappers = [
        lambda env: gymnasium.wrappers.TimeLimit(env, 7),
        "obs_norm",
        dict(type="frame_stack", stack_size=2),
        dict(type="frame_stack", kwargs=dict(stack_size=3)),
    ]

    env = DingEnvWrapper(GoodEnv(), dict(env_wrapper=wrappers))

    assert env.observation_space.shape == (3, 2, 3)
    assert env.reset().shape == (3, 2, 3)


def test_what_is_no_env_or_wrapper_is_refused() -> None:
    with pytest.raises(ConfigError, match="cfg.env_wrapper holds 5; expected a function"):
        DingEnvWrapper(GoodEnv(), dict(env_wrapper=[5]))
    with pytest.raises(EnvError, match=r"DingEnvWrapper\(cfg=...\)"):
        DingEnvWrapper(CARTPOLE)  # type: ignore[arg-type]


def test_a_static_seed_repeats_and_a_dynamic_one_begins_there_and_goes_on_to_others() -> None:
    first, second, static = (DingEnvWrapper(GoodEnv()) for _ in range(3))
    first.seed(4)
    second.seed(4)
    static.seed(4, dynamic_seed=False)

    episodes = [play(first) for _ in range(3)]

    assert np.array_equal(episodes[0], play(static)) and np.array_equal(episodes[0], play(static))
    assert np.array_equal(episodes, [play(second) for _ in range(3)])
    assert len({episode[0].tobytes() for episode in episodes}) == 3


def test_reset_parameters_reach_the_env_as_options() -> None:
    inner = Optional()
    env = DingEnvWrapper(inner)

    env.reset(start=3)
    assert inner.options == {"start": 3}
    env.reset()
    assert inner.options is None


def test_a_clone_is_another_env_of_the_same_config() -> None:
    env = DingEnvWrapper(cfg=CARTPOLE)

    other = env.clone()

    assert other.gymnasium_env is not env.gymnasium_env
    assert other.observation_space == env.observation_space
    with pytest.raises(EnvError, match="cannot be cloned"):
        DingEnvWrapper(GoodEnv()).clone()


def transitions(env_fn: Any, **cfg: Any) -> list[Any]:
    """Return what a manager reports of two lanes for 40 steps."""
    found: list[Any] = []
    with BaseEnvManager([env_fn, env_fn], cfg) as manager:
        manager.seed(3)
        manager.launch()
        for count in range(40):
            batch = manager.step(np.arange(2), np.array([action_of(lane, count) % 2 for lane in range(2)]))
            found.append([np.array(column).tolist() for column in batch[1:5]])
    return found


@pytest.mark.filterwarnings("ignore")
def test_in_a_manager_it_behaves_like_the_gymnasium_env_itself() -> None:
    # Every episode is seeded, so that both draw the same numbers.
    wrapped = transitions(lambda: DingEnvWrapper(GoodEnv(limit=9)), reseed_after=0)

    assert wrapped == transitions(lambda: GoodEnv(limit=9), reseed_after=0)
    assert any(any(step[2]) for step in wrapped) or any(any(step[3]) for step in wrapped)


def test_in_the_seeds_manager_reset_parameters_reach_it() -> None:
    envs = [Optional(), Optional()]
    unmade = iter(envs)
    manager = DictEnvManager([lambda: DingEnvWrapper(next(unmade))] * 2)

    manager.launch({0: {"seed": 5, "level": 2}, 1: None})

    assert [env.options for env in envs] == [{"level": 2}, None]
    manager.close()


@needs_pillow
def test_an_env_made_from_its_id_is_made_anew_to_draw(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setenv("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    pytest.importorskip("pygame")
    env = DingEnvWrapper(cfg=dict(CARTPOLE, max_episode_steps=3, env_wrapper=["obs_norm"]))
    env.seed(0)

    env.enable_save_replay(str(tmp_path))
    until_over(env)

    env.close()

    assert film_ms(tmp_path / "episode_0.gif") == 4 * 20


@needs_pillow
def test_recording_twice_is_refused(tmp_path: Any) -> None:
    env = DingEnvWrapper(GoodEnv(render_mode="rgb_array"))
    env.enable_save_replay(str(tmp_path))

    with pytest.raises(EnvError, match="recorded already"):
        env.enable_save_replay(str(tmp_path))


def test_random_actions_repeat_after_a_seed() -> None:
    env, drawn = DingEnvWrapper(gymnasium.make("Pendulum-v1")), []
    for seed in (3, 3, 4):
        env.seed(seed)
        drawn.append([np.asarray(env.random_action()).tolist() for _ in range(4)])
    env.close()

    assert drawn[0] == drawn[1] != drawn[2]


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


def test_repeated_actions_add_up_their_rewards_until_the_end() -> None:
    env = theirs.ActionRepeatWrapper(Told([2.0], length=5), action_repeat=3)
    env.reset()

    first, last = env.step(0), env.step(0)

    assert (first[1], first[2]) == (6.0, False) and (last[1], last[2]) == (4.0, True)


def test_affine_transform_maps_minus_one_and_one_to_the_ends() -> None:
    data = np.array([-2.0, -1.0, 0.0, 1.0])

    assert affine_transform(data, min_val=-4.0, max_val=2.0).tolist() == [-4.0, -4.0, -1.0, 2.0]
    assert affine_transform(data, action_clip=False, alpha=3.0, beta=1.0).tolist() == [-5.0, -2.0, 1.0, 4.0]
    with pytest.raises(ConfigError, match="min_val"):
        affine_transform(data)


def walk(**cfg: Any) -> DiEngineStyleEnv:
    return DiEngineStyleEnv(DiEngineStyleWalk(cfg))


def step_until_over(env: DiEngineStyleEnv, action: int = 1) -> Any:
    while True:
        answer = env.step(action)
        if answer[2] or answer[3]:
            return answer


def test_done_means_terminated_and_a_time_limit_in_info_truncated() -> None:
    for env, ends in [(walk(), (True, False)), (walk(width=9, limit=2), (False, True))]:
        env.reset(seed=0)
        _, reward, *answer = step_until_over(env)
        env.close()

        assert tuple(answer[:2]) == ends and env.env.is_closed
        assert reward == 0.5 and type(reward) is float


def test_what_done_means_is_said_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_warned", set())
    env = walk()

    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            env.reset(seed=0)
            step_until_over(env)

    assert caplog.text.count("reports only `done`") == 1
    assert "TimeLimit.truncated" in caplog.text


def test_a_reward_of_many_numbers_is_an_env_error() -> None:
    class Many(DiEngineStyleWalk):
        def step(self, action: Any) -> BaseEnvTimestep:
            return super().step(action)._replace(reward=np.zeros(2))

    env = DiEngineStyleEnv(Many({}))
    env.reset(seed=0)

    with pytest.raises(EnvError, match="expected one number"):
        env.step(1)


def test_every_reset_seeds_the_env_statically_from_what_the_last_seeded_one_began() -> None:
    class Plain(DiEngineStyleWalk):
        def seed(self, seed: int) -> None:  # type: ignore[override]
            super().seed(seed, False)

    first, second, plain = walk(), walk(), DiEngineStyleEnv(Plain({}))

    for env in (first, second, plain):
        for seed in (7, None, None):
            env.reset(seed=seed)

    assert first.env.seeds == second.env.seeds == plain.env.seeds
    assert first.env.seeds[0] == (7, False) and len({seed for seed, _ in first.env.seeds}) == 3


def test_options_are_the_resets_own_parameters() -> None:
    obs, _ = walk().reset(seed=0, options={"start": 2})

    assert obs[0] == 2


def test_an_env_without_spaces_is_refused() -> None:
    class Spaceless(DiEngineStyleWalk):
        observation_space = None

    with pytest.raises(EnvError, match="observation_space of Spaceless is None"):
        DiEngineStyleEnv(Spaceless({}))


def test_a_di_engine_style_env_runs_in_a_manager_and_resumes_exactly() -> None:
    def manager() -> BaseEnvManager:
        return BaseEnvManager(
            [lambda: make_env(dict(type="tests.envs.my_envs:DiEngineStyleWalk"))] * 2, dict(reseed_after=9)
        )

    rng = np.random.default_rng(0)
    original = manager()
    original.launch()
    for _ in range(40):
        original.step(np.arange(2), rng.integers(2, size=2))

    other = manager()
    other.load_state_dict(original.state_dict())

    assert other.lanes_lost == []
    assert np.array_equal(other.obs, original.obs)
    actions = rng.integers(2, size=(40, 2))
    for action in actions:
        assert np.array_equal(other.step(np.arange(2), action).next_obs, original.step(np.arange(2), action).next_obs)


def test_random_actions_lie_in_their_space_and_the_default_config_is_a_copy() -> None:
    cfg, env = DiEngineStyleWalk.default_config(), DiEngineStyleWalk({})

    cfg.width = 99

    assert cfg.cfg_type == "DiEngineStyleWalkDict" and DiEngineStyleWalk.config["width"] == 3
    assert env.action_space.contains(env.random_action())
    assert isinstance(env, BaseEnv) and env.reward_space is not None
