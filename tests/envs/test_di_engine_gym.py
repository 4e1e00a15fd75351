"""Every key of DI-engine's env sections does what it says, and ids that are gone stand for those that there are."""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from ding_like.config import compile_config
from ding_like.entry import serial_pipeline_onpolicy
from ding_like.envs import EnvFactory, create_env_manager, get_vec_env_setting, make_env
from ding_like.envs.factory import env_class
from ding_like.envs.gymnasium_env import DiEngineGymEnv
from ding_like.envs.wrappers import wrapper_states
from ding_like.errors import ConfigError
from ding_like.utils import log

# type -> module at DI-engine's place.
MODULES = {
    "cartpole": "dizoo.classic_control.cartpole.envs.cartpole_env",
    "pendulum": "dizoo.classic_control.pendulum.envs.pendulum_env",
    "acrobot": "dizoo.classic_control.acrobot.envs.acrobot_env",
    "mountain_car": "dizoo.classic_control.mountain_car.envs.mtcar_env",
    "lunarlander": "dizoo.box2d.lunarlander.envs.lunarlander_env",
    "bipedalwalker": "dizoo.box2d.bipedalwalker.envs.bipedalwalker_env",
    "carracing": "dizoo.box2d.carracing.envs.carracing_env",
    "bitflip": "dizoo.bitflip.envs.bitflip_env",
}


def section(type_: str, **keys: Any) -> dict[str, Any]:
    """Return an env section as a config of DI-engine's has it."""
    return dict(type=type_, import_names=[MODULES[type_]], **keys)


def played(env: Any, actions: list[Any]) -> tuple[list[float], dict[str, Any]]:
    """Return the rewards of an episode, whose last action is repeated until it ends, and its last info."""
    env.reset(seed=3)
    rewards, time = [], 0
    while True:
        _, reward, terminated, truncated, info = env.step(actions[min(time, len(actions) - 1)])
        rewards.append(float(reward))
        time += 1
        if terminated or truncated:
            return rewards, info


@pytest.fixture(autouse=True)
def _nothing_said_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_warned", set())


def test_each_type_lies_at_di_engines_place_under_its_name() -> None:
    for type_ in MODULES:
        cls = env_class(section(type_))

        assert isinstance(cls, type) and issubclass(cls, DiEngineGymEnv)
        assert cls.__module__ == MODULES[type_]
        # Scripts import the class from the package, as `from dizoo.box2d.lunarlander.envs import LunarLanderEnv`.
        assert getattr(sys.modules[MODULES[type_].rpartition(".")[0]], cls.__name__) is cls


def test_an_env_made_from_an_empty_section_plays() -> None:
    for type_ in MODULES:
        env = env_class(section(type_))({})
        env.action_space.seed(0)

        obs, _ = env.reset(seed=0)
        next_obs, *_ = env.step(env.random_action())

        assert env.observation_space.contains(obs) and env.observation_space.contains(next_obs)
        env.close()


@pytest.mark.parametrize(
    ("type_", "old", "new"),
    [
        ("pendulum", "Pendulum-v0", "Pendulum-v1"),
        ("lunarlander", "LunarLander-v2", "LunarLander-v3"),
        ("lunarlander", "LunarLanderContinuous-v2", "LunarLanderContinuous-v3"),
        ("bipedalwalker", "BipedalWalker-v2", "BipedalWalker-v3"),
        ("bipedalwalker", "BipedalWalkerHardcore-v2", "BipedalWalkerHardcore-v3"),
        ("carracing", "CarRacing-v2", "CarRacing-v3"),
    ],
)
def test_an_id_that_is_gone_stands_for_its_successor_and_is_named_once(
    type_: str, old: str, new: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="ding_like"):
        envs = [make_env(section(type_, env_id=old)) for _ in range(2)]

    assert [env.spec.id for env in envs if env.spec is not None] == [new, new]
    assert caplog.messages == [f"env.env_id '{old}' is made as '{new}'"]
    for env in envs:
        env.close()


@pytest.mark.parametrize(("keys", "steps"), [({}, 200), (dict(max_episode_steps=7), 7)])
def test_cartpole_v0_keeps_its_200_steps_unless_the_section_says_otherwise_and_gymnasium_does_not_complain(
    keys: dict[str, Any], steps: int
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = make_env(section("cartpole", env_id="CartPole-v0", **keys))

    assert env.spec is not None and env.spec.max_episode_steps == steps


def test_act_scale_stretches_actions_of_one_to_the_bound_of_the_env() -> None:
    scaled, plain = make_env(section("pendulum", act_scale=True)), make_env(section("pendulum"))

    assert scaled.action_space == gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    one, two = np.ones(1, np.float32), np.full(1, 2.0, np.float32)
    assert played(scaled, [one])[0] == played(plain, [two])[0] != played(plain, [one])[0]


def test_act_scale_leaves_discrete_actions_alone_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="ding_like"):
        envs = [make_env(section("cartpole", act_scale=True)) for _ in range(2)]

    assert [env.action_space for env in envs] == [gymnasium.spaces.Discrete(2)] * 2
    assert len(caplog.messages) == 1 and caplog.messages[0].startswith("env.act_scale changes nothing")


def test_discrete_pendulum_has_11_torques_from_bound_to_bound() -> None:
    discrete, plain = make_env(section("pendulum", continuous=False, act_scale=True)), make_env(section("pendulum"))

    assert discrete.action_space == gymnasium.spaces.Discrete(11)
    for action, torque in ((0, -2.0), (5, 0.0), (10, 2.0), (7, 0.8)):
        assert played(discrete, [action])[0] == pytest.approx(played(plain, [np.full(1, torque, np.float32)])[0])


def test_rew_clip_makes_a_fall_cost_10_and_reports_the_envs_own_return() -> None:
    still = [np.zeros(4, np.float32)]
    own, _ = played(make_env(section("bipedalwalker")), still)

    clipped, info = played(make_env(section("bipedalwalker", rew_clip=True)), still)

    assert own[-1] == -100 and clipped[-1] == -10
    assert clipped[:-1] == pytest.approx(own[:-1])
    assert info["eval_episode_return"] == pytest.approx(sum(own))


def test_rew_clip_takes_a_range_of_its_own_and_leaves_rewards_of_evaluator_envs_alone() -> None:
    cfg = section("cartpole", rew_clip=[0, 0.25], collector_env_num=1, evaluator_env_num=1)
    env_fn, [collector], [evaluator] = get_vec_env_setting(cfg)

    rewards, info = played(env_fn(collector), [0])

    assert set(rewards) == {0.25}
    assert info["eval_episode_return"] == len(rewards)
    assert set(played(env_fn(evaluator), [0])[0]) == {1.0}


def test_norm_obs_normalises_observations_in_all_envs() -> None:
    cfg = section("pendulum", norm_obs=dict(use_norm=True), collector_env_num=1, evaluator_env_num=1)
    env_fn, collector, evaluator = get_vec_env_setting(cfg)

    for one in (*collector, *evaluator):
        env = env_fn(one)
        env.reset(seed=0)
        assert [state["type"] for state in wrapper_states(env)] == ["ObsNorm"]


def test_norm_reward_scales_rewards_with_its_discount_and_reports_the_envs_own_return() -> None:
    push = [np.ones(1, np.float32)]
    own, _ = played(make_env(section("pendulum")), push)

    rewards = {}
    for discount in (0.9, 0.99):
        env = make_env(section("pendulum", norm_reward=dict(use_norm=True, reward_discount=discount)))
        rewards[discount], info = played(env, push)
        assert info["eval_episode_return"] == pytest.approx(sum(own))

    assert abs(rewards[0.9][-1]) > abs(rewards[0.99][-1]) > 0
    assert rewards[0.9] != own


def test_continuous_car_racing_takes_steering_gas_and_brake_and_the_other_five_actions() -> None:
    envs = [make_env(section("carracing", **keys)) for keys in ({}, dict(continuous=False), dict(continuous=True))]

    assert [env.action_space.shape for env in envs] == [(), (), (3,)]
    assert all(env.observation_space.shape == (3, 96, 96) for env in envs)
    for env in envs:
        env.close()


def test_kwargs_win_over_keys() -> None:
    env = make_env(section("carracing", continuous=False, kwargs=dict(continuous=True)))

    assert env.action_space.shape == (3,)
    env.close()


def test_wrappers_of_the_section_come_around_those_of_its_keys() -> None:
    env = make_env(
        section("pendulum", act_scale=True, wrappers=[dict(type="rescale_action", min_action=0.0, max_action=1.0)])
    )

    two = np.full(1, 2.0, np.float32)
    assert isinstance(env.action_space, gymnasium.spaces.Box) and env.action_space.low[0] == 0.0
    assert played(env, [np.ones(1, np.float32)])[0] == played(make_env(section("pendulum")), [two])[0]


@pytest.mark.parametrize("keys", [{}, dict(env_id="CartPole-v0")])
def test_the_vectorised_form_is_used_where_no_key_asks_for_more(keys: dict[str, Any]) -> None:
    manager = create_env_manager(dict(type="gym_vector"), [EnvFactory(section("cartpole", **keys)) for _ in range(2)])
    manager.launch()

    assert not manager.lane_seeds  # only gymnasium's own vector env lacks seeds for single lanes
    if keys:
        steps = 0
        while not (done := _balanced(manager)).any():
            steps += 1
        assert steps < 200 and done.any()
    manager.close()


def _balanced(manager: Any) -> Any:
    """Step all lanes towards the side to which the pole falls; return which episodes ended."""
    lanes = np.flatnonzero(manager.ready)
    actions = (manager.obs[lanes, 2] + 0.5 * manager.obs[lanes, 3] > 0).astype(np.int64)
    batch = manager.step(lanes, actions)
    return batch.terminated | batch.truncated


def test_a_key_that_asks_for_a_wrapper_or_a_film_takes_the_vectorised_form_away() -> None:
    for keys in [dict(rew_clip=True), dict(norm_obs=dict(use_norm=True)), dict(replay_path="video")]:
        cls: Any = env_class(section("cartpole"))

        assert cls.vector_entry(section("cartpole")) is not None
        assert cls.vector_entry(section("cartpole", **keys)) is None


def test_a_sub_class_that_adds_code_is_never_replaced_by_a_plain_env() -> None:
    class Doubled(DiEngineGymEnv):
        config = {**DiEngineGymEnv.config, "env_id": "CartPole-v1"}

        def step(self, action: Any) -> Any:
            obs, reward, *rest = self.env.step(action)
            return obs, 2 * float(reward), *rest

    assert Doubled.plain_config({}) is None and Doubled.vector_entry({}) is None
    env = Doubled({})
    env.reset(seed=0)
    assert env.step(0)[1] == 2.0


def test_the_first_evaluator_env_alone_is_recorded() -> None:
    cfg = section("cartpole", replay_path="video", collector_env_num=2, evaluator_env_num=3)

    _, collector, evaluator = get_vec_env_setting(cfg)

    assert [each.replay_path for each in collector] == [None, None]
    assert [each.replay_path for each in evaluator] == ["video", None, None]


def test_an_env_made_by_itself_records_every_episode(tmp_path: Path) -> None:
    env = make_env(section("cartpole", replay_path=str(tmp_path), max_episode_steps=2))

    for _ in range(3):
        played(env, [0])

    env.close()
    assert sorted(file.name for file in tmp_path.iterdir()) == [f"episode_{n}.gif" for n in range(3)]


def test_an_evaluator_env_records_the_episodes_of_gymnasiums_schedule(tmp_path: Path) -> None:
    cfg = section("cartpole", replay_path=str(tmp_path), evaluator_env_num=1, max_episode_steps=2)
    env_fn, _, [evaluator] = get_vec_env_setting(cfg, collect=False)
    env = env_fn(evaluator)
    written = []

    for _ in range(10):
        before = len(list(tmp_path.iterdir()))
        played(env, [0])
        written.append(len(list(tmp_path.iterdir())) > before)

    env.close()
    assert [episode for episode, is_new in enumerate(written) if is_new] == [0, 1, 8]


def test_enable_save_replay_records_from_the_next_reset_on(tmp_path: Path) -> None:
    env: Any = env_class(section("cartpole"))({})
    played(env, [0])

    env.enable_save_replay(str(tmp_path))
    played(env, [0])

    env.close()
    assert [file.name for file in tmp_path.iterdir()] == ["episode_0.gif"]


def test_an_env_that_cannot_be_drawn_runs_unrecorded_with_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)

    for _ in range(2):
        played(make_env(section("cartpole", replay_path=str(tmp_path))), [0])

    assert len(caplog.messages) == 1 and "is not recorded" in caplog.messages[0] and "pygame" in caplog.messages[0]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("in_tmp", "no_pictures")
def test_a_run_records_evaluations_where_replay_path_says(tmp_path: Path) -> None:
    counts = dict(collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2)
    env = dict(**counts, replay_path="run/video", max_episode_steps=10)
    policy = dict(learn=dict(batch_size=16), collect=dict(n_sample=64))
    create = dict(env=dict(type="cartpole", import_names=[MODULES["cartpole"]]), policy=dict(type="ppo"))

    serial_pipeline_onpolicy(
        (dict(exp_name="run", env=env, policy=policy), create), seed=0, max_env_step=64, max_train_iter=1
    )

    assert "episode_0.gif" in {file.name for file in (tmp_path / "run/video").iterdir()}


def test_wrong_input_is_one_clear_error() -> None:
    for type_, keys, said in [
        ("bipedalwalker", dict(rew_clip=[1, -1]), r"env\.rew_clip +is \[1, -1\]; expected True, False or a range"),
        ("bipedalwalker", dict(rew_clip=[None, None]), r"env\.rew_clip"),
        ("bipedalwalker", dict(rew_clip=3), r"env\.rew_clip +expected bool or list or tuple, got int 3"),
        ("bipedalwalker", dict(act_scal=True), r"env\.act_scal +unknown key; did you mean 'act_scale'"),
        ("pendulum", dict(norm_obs=True), r"env\.norm_obs +expected a section"),
        (
            "pendulum",
            dict(norm_obs=dict(use_nrm=True)),
            r"env\.norm_obs\.use_nrm +unknown key; did you mean 'use_norm'",
        ),
        ("pendulum", dict(continuous="no"), r"env\.continuous +expected bool"),
        ("lunarlander", dict(continuous=True), r"env\.continuous +unknown key"),
        ("cartpole", dict(replay_path=1), r"env\.replay_path +expected str"),
        ("bitflip", dict(n_bits=1.5), r"env\.n_bits +expected int"),
    ]:
        create = dict(env=dict(type=type_, import_names=[MODULES[type_]]), policy=dict(type="dqn"))

        with pytest.raises(ConfigError, match=said):
            compile_config(dict(env=keys), create, save=False)


def test_a_manager_that_cannot_draw_refuses_replay_path() -> None:
    create = dict(
        env=dict(type="cartpole", import_names=[MODULES["cartpole"]]),
        env_manager=dict(type="envpool"),
        policy=dict(type="dqn"),
    )

    with pytest.raises(ConfigError, match=r"env\.replay_path +is set, but env manager 'envpool' draws nothing"):
        compile_config(dict(env=dict(replay_path="video")), create, save=False)


def test_an_id_of_another_suite_is_refused_with_close_ones() -> None:
    with pytest.raises(ConfigError, match="'LunarLander-v1'.*'LunarLander-v3'"):
        make_env(section("lunarlander", env_id="LunarLander-v1"))


def test_is_train_is_said_to_have_no_effect_in_a_run(caplog: pytest.LogCaptureFixture) -> None:
    create = dict(env=dict(type="cartpole", import_names=[MODULES["cartpole"]]), policy=dict(type="dqn"))

    with caplog.at_level(logging.INFO, logger="ding_like"):
        compile_config(dict(env=dict(is_train=True)), create, save=False)

    assert any("env.is_train" in message for message in caplog.messages)
