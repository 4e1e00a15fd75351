"""How a gymnasium env looks in DI-engine's style."""

from __future__ import annotations

import importlib.util
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ding_like.envs import BaseEnv, BaseEnvTimestep, DingEnvWrapper
from ding_like.envs.di_engine import BaseEnvManager as DictEnvManager
from ding_like.envs.manager.base import BaseEnvManager
from ding_like.errors import ConfigError, EnvError
from tests.envs.bad_envs import GoodEnv
from tests.envs.scripted_env import ScriptedEnv, action_of

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


def test_a_static_seed_repeats_every_episode() -> None:
    env = DingEnvWrapper(GoodEnv())

    env.seed(4, dynamic_seed=False)

    assert np.array_equal(play(env), play(env))


def test_a_dynamic_seed_begins_there_and_goes_on_to_others() -> None:
    first, second, static = (DingEnvWrapper(GoodEnv()) for _ in range(3))
    first.seed(4)
    second.seed(4)
    static.seed(4, dynamic_seed=False)

    episodes = [play(first) for _ in range(3)]

    assert np.array_equal(episodes[0], play(static))
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
