"""How an env config becomes environments."""

from __future__ import annotations

import functools
import pickle
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from easydict import EasyDict

from ding_like.config import FrozenConfig
from ding_like.envs import EnvFactory, create_env_manager, get_vec_env_setting, make_env
from ding_like.errors import ConfigError, EnvError, RegistryError
from tests.envs.my_envs import DiEngineStyleWalk, ShoutingEnv

CARTPOLE = dict(type="gymnasium", env_id="CartPole-v1")


def test_any_gymnasium_id_makes_its_env_with_its_time_limit() -> None:
    assert make_env({**CARTPOLE, "render_mode": "rgb_array"}).render_mode == "rgb_array"
    env = make_env(dict(type="gymnasium", env_id="MountainCar-v0"))

    assert env.spec is not None and env.spec.id == "MountainCar-v0"
    assert env.spec.max_episode_steps == 200


def test_kwargs_and_time_limit_of_the_config_reach_gymnasium() -> None:
    cfg = dict(type="gymnasium", env_id="FrozenLake-v1", kwargs=dict(is_slippery=False), max_episode_steps=7)

    env = make_env(cfg)

    assert env.spec is not None
    assert env.spec.kwargs["is_slippery"] is False and env.spec.max_episode_steps == 7


def test_an_env_steps_as_gymnasiums_own_does() -> None:
    ours, theirs = make_env(CARTPOLE), gymnasium.make("CartPole-v1")

    rows = []
    for env in (ours, theirs):
        obs, _ = env.reset(seed=3)
        rows.append([obs.tolist(), *(env.step(1)[0].tolist() for _ in range(5))])

    assert rows[0] == rows[1]


def test_a_wrong_section_is_one_clear_error() -> None:
    for section, error, said in [
        (dict(kwargs={"gravitas": 9.8}), ConfigError, "CartPole-v1.*gravitas"),
        (dict(env_id="CartPol-v1"), ConfigError, "'CartPol-v1'.*'CartPole-v1'"),
        (dict(env_id="LunarLander-v2"), ConfigError, "'LunarLander-v2'.*'LunarLander-v3'"),
        (dict(env_id=None), ConfigError, r"env\.env_id is not set"),
        (dict(env_id="no_such_module:CartPole-v1"), ConfigError, "module 'no_such_module' cannot be imported"),
        (dict(wrappers=[dict(type="TimeAwareObservatio")]), ConfigError, "did you mean 'TimeAwareObservation'"),
        (dict(wrappers=[dict(type="FrameStackObservation", size=2)]), ConfigError, "stack_size"),
        (dict(wrappers=[dict(stack_size=2)]), ConfigError, "a dict with a 'type'"),
        (dict(type="gymnasum"), RegistryError, "gymnasum.*'gymnasium'"),
        (dict(type="no_such_module:Env"), RegistryError, "cannot be imported: no module no_such_module"),
        (
            dict(type="tests.envs.my_envs:ShoutinEnv"),
            RegistryError,
            "no class 'ShoutinEnv'; did you mean 'ShoutingEnv'",
        ),
        (dict(type="tests.envs.my_envs:NOT_A_CLASS"), RegistryError, "no class 'NOT_A_CLASS'"),
    ]:
        with pytest.raises(error, match=said):
            make_env({**CARTPOLE, **section})
    with pytest.raises(EnvError, match="lacks reset, step, seed, close"):
        EnvFactory({}, lambda cfg: object())()


def test_an_id_whose_package_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ale_py", None)

    with pytest.raises(EnvError, match=r"ale_py.*ding-like\[atari\]"):
        make_env(dict(type="gymnasium", env_id="ALE/NoSuchGame-v5"))


def test_an_id_may_name_the_module_that_registers_it() -> None:
    assert make_env(dict(type="gymnasium", env_id="gymnasium.envs.classic_control:CartPole-v1")).spec is not None


def test_a_class_by_import_path_is_made_with_kwargs_and_a_base_env_with_the_config() -> None:
    env: Any = make_env(dict(type="tests.envs.my_envs:ShoutingEnv", kwargs=dict(loudness=11)))
    assert isinstance(env, ShoutingEnv) and env.env_id == 11

    for type_ in ("tests.envs.my_envs:DiEngineStyleWalk", "di_engine_style_walk"):
        env = make_env(dict(type=type_, import_names=["tests.envs.my_envs"], width=9))

        assert isinstance(env.env, DiEngineStyleWalk) and env.env.cfg["width"] == 9


def test_wrappers_of_the_config_lie_around_the_env_innermost_first() -> None:
    wrappers = [dict(type="TimeAwareObservation"), dict(type="FrameStackObservation", stack_size=2)]

    env = make_env({**CARTPOLE, "wrappers": wrappers})

    assert env.observation_space.shape == (2, 5)


def test_a_factory_can_be_pickled_and_takes_a_function_of_the_users() -> None:
    factory = pickle.loads(pickle.dumps(EnvFactory(EasyDict({**CARTPOLE, "kwargs": {"sutton_barto_reward": True}}))))
    env = factory()
    env.reset(seed=0)
    assert env.step(0)[1] == 0.0

    own: Any = EnvFactory(dict(width=5), lambda cfg: DiEngineStyleWalk(cfg))()
    assert own.env.cfg["width"] == 5


def test_setting_has_a_config_for_every_env_that_is_asked_for() -> None:
    cfg = FrozenConfig({**CARTPOLE, "collector_env_num": 3, "evaluator_env_num": 2, "manager": {"type": "base"}})

    env_fn, collector, evaluator = get_vec_env_setting(cfg)
    _, nothing, again = get_vec_env_setting({**CARTPOLE, "evaluator_env_num": 2}, collect=False)

    assert [len(each) for each in (collector, evaluator, nothing, again)] == [3, 2, 0, 2]
    assert collector[0] is not collector[1]
    assert env_fn(collector[0]).spec.id == "CartPole-v1"


def test_setting_asks_the_class_where_it_says_how_many_envs_there_are() -> None:
    cfg = dict(type="tests.envs.my_envs:DiEngineStyleCounted", collector_env_num=3, evaluator_env_num=2)

    _, collector, evaluator = get_vec_env_setting(cfg)

    assert [each.width for each in collector] == [2, 3, 4]
    assert len(evaluator) == 2
    assert cfg["collector_env_num"] == 3


def test_a_wrong_number_of_envs_is_a_config_error() -> None:
    for num in [None, 0, "8"]:
        with pytest.raises(ConfigError, match="collector_env_num"):
            get_vec_env_setting({**CARTPOLE, "collector_env_num": num, "evaluator_env_num": 1})


def test_an_unknown_manager_is_a_registry_error() -> None:
    with pytest.raises(RegistryError, match="bse.*'base'"):
        create_env_manager(dict(type="bse"), [EnvFactory(CARTPOLE)])


@pytest.mark.parametrize("kind", ["base", "gym_vector"])
def test_partials_of_the_setting_make_a_manager(kind: str) -> None:
    env_fn, collector, _ = get_vec_env_setting({**CARTPOLE, "collector_env_num": 2}, eval_=False)

    manager = create_env_manager(dict(type=kind), [functools.partial(env_fn, cfg=cfg) for cfg in collector])
    manager.launch()

    assert manager.obs.shape == (2, 4)
    manager.step(np.arange(2), np.zeros(2, np.int64))
    manager.close()
