"""Env suites under DI-engine's types and keys: MuJoCo, Atari, MinAtar, MiniGrid, DeepMind Control, simple_spread."""

from __future__ import annotations

import ctypes.util
import importlib.util
import json
import logging
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from easydict import EasyDict

from ding_like.config import compile_config
from ding_like.entry import serial_pipeline_onpolicy
from ding_like.envs import EnvFactory, create_env_manager, get_vec_env_setting
from ding_like.envs.factory import make_env
from ding_like.envs.game import PettingZooGame
from ding_like.envs.wrappers import wrap
from ding_like.errors import ConfigError
from ding_like.utils import log

MODULES = {
    "mujoco": "dizoo.mujoco.envs.mujoco_env",
    "atari": "dizoo.atari.envs.atari_env",
    "minatar": "dizoo.minatar.envs.minatar_env",
    "minigrid": "dizoo.minigrid.envs.minigrid_env",
    "dmc2gym": "dizoo.dmc2gym.envs.dmc2gym_env",
    "petting_zoo": "dizoo.petting_zoo.envs.petting_zoo_simple_spread_env",
    "chain": "dizoo.chain.envs.chain_env",
    "cliffwalking": "dizoo.cliffwalking.envs.cliffwalking_env",
    "frozen_lake": "dizoo.frozen_lake.envs.frozen_lake_env",
    "taxi": "dizoo.taxi.envs.taxi_env",
    "pomdp": "dizoo.pomdp.envs.atari_env",
    "petting_zoo_pistonball": "dizoo.petting_zoo.envs.petting_zoo_pistonball_env",
    "mamujoco": "dizoo.multiagent_mujoco.envs.multi_mujoco_env",
    "mujoco_multi": "dizoo.multiagent_mujoco.envs.multi_mujoco_env",
}


def needs(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(importlib.util.find_spec(package) is None, reason=f"needs {package}")


def section(suite: str, **keys: Any) -> EasyDict:
    return EasyDict(type=suite, import_names=[MODULES[suite]], **keys)


def make(suite: str, **keys: Any) -> Any:
    return make_env(section(suite, **keys))


def faults(suite: str, **keys: Any) -> str:
    """Return what compiling says of an env section."""
    main = dict(env=dict(collector_env_num=1, evaluator_env_num=1, **keys), policy=dict())
    create = dict(env=dict(type=suite, import_names=[MODULES[suite]]), policy=dict(type="ppo"))
    with pytest.raises(ConfigError) as raised:
        compile_config(main, create, save=False)
    return str(raised.value)


def rewards(env: Any, steps: int) -> list[float]:
    """Return the rewards of one episode of the same actions, at most `steps` of them."""
    rng = np.random.default_rng(0)
    env.reset(seed=0)
    found = []
    for _ in range(steps):
        action = rng.uniform(-1, 1, env.action_space.shape).astype(env.action_space.dtype)
        _, reward, terminated, truncated, _ = env.step(action)
        found.append(float(reward))
        if terminated or truncated:
            break
    env.close()
    return found


# --- MuJoCo


@needs("mujoco")
def test_mujoco_ids_of_old_are_the_same_tasks_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="ding_like"):
        env = make("mujoco", env_id="Walker2d-v3")
        make("mujoco", env_id="Walker2d-v3").close()

    assert env.spec.id == "Walker2d-v4"
    # The two feet differ in version 4 as in 3, and no more in version 5.
    assert env.unwrapped.model.geom("foot_geom").friction[0] != env.unwrapped.model.geom("foot_left_geom").friction[0]
    env.close()
    assert caplog.messages == ["env.env_id 'Walker2d-v3' is made as 'Walker2d-v4'"]


@needs("mujoco")
@pytest.mark.parametrize(("env_id", "size"), [("Ant-v3", 111), ("Ant-v4", 27), ("Reacher-v2", 11)])
def test_observations_of_mujoco_have_the_size_that_configs_say(env_id: str, size: int) -> None:
    env = make("mujoco", env_id=env_id)

    assert env.observation_space.shape == (size,)
    env.close()


@needs("mujoco")
def test_delayed_rewards_are_paid_in_sums_and_none_is_lost() -> None:
    plain = rewards(make("mujoco", env_id="Hopper-v5"), 100)
    delayed = rewards(make("mujoco", env_id="Hopper-v5", delay_reward_step=4), 100)

    assert len(plain) == len(delayed) and len(plain) % 4 != 0, "the hopper falls between two payments"
    expected = [sum(plain[i - i % 4 : i + 1]) if i % 4 == 3 or i == len(plain) - 1 else 0.0 for i in range(len(plain))]
    assert delayed == pytest.approx(expected)


@needs("mujoco")
def test_evaluations_of_delayed_rewards_are_not_delayed() -> None:
    _, collector, evaluator = get_vec_env_setting(
        section("mujoco", collector_env_num=1, evaluator_env_num=1, delay_reward_step=1000)
    )

    assert rewards(make_env(collector[0]), 5) == [0.0] * 5
    assert all(rewards(make_env(evaluator[0]), 5))


@needs("mujoco")
def test_actions_of_mujoco_may_be_scaled() -> None:
    env = make("mujoco", env_id="InvertedPendulum-v5", use_act_scale=True)

    assert env.unwrapped.action_space.high == [3.0] and env.action_space.high == [1.0]
    env.close()


@needs("mujoco")
def test_actions_of_mujoco_beyond_their_range_may_be_cut() -> None:
    plain, cut = make("mujoco", env_id="HalfCheetah-v5"), make("mujoco", env_id="HalfCheetah-v5", action_clip=True)
    for env in (plain, cut):
        env.reset(seed=0)

    # The cost of an action is that of what was done, here of 1 and not of 9.
    assert cut.step(np.full(6, 9.0, np.float32))[1] == pytest.approx(plain.step(np.ones(6, np.float32))[1])
    assert cut.action_space == plain.action_space
    plain.close()
    cut.close()


@needs("mujoco")
def test_managers_hold_float32_of_mujoco() -> None:
    with create_env_manager(dict(type="base"), [EnvFactory(section("mujoco", env_id="Hopper-v3"))]) as manager:  # type: ignore[attr-defined]
        manager.seed(0)
        manager.launch()

        assert manager.obs.dtype == np.float32 and manager.observation_space.dtype == np.float32


@needs("mujoco")
def test_mujoco_leaves_no_file_where_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    rewards(make("mujoco", env_id="HalfCheetah-v5"), 2)

    assert not list(tmp_path.iterdir())


@needs("mujoco")
def test_several_agents_in_one_body_are_refused() -> None:
    assert "env.multi_agent" in faults("mujoco", multi_agent=True)


# --- Atari


@needs("ale_py")
@pytest.mark.parametrize(("is_train", "expected"), [(True, True), (False, False)])
def test_lives_and_clipped_rewards_are_for_training_alone(is_train: bool, expected: bool) -> None:
    role = "collector" if is_train else "evaluator"
    _, collector, evaluator = get_vec_env_setting(section("atari", collector_env_num=1, evaluator_env_num=1))
    from dizoo.atari.envs import AtariEnv

    plain = AtariEnv.plain_config({"collector": collector, "evaluator": evaluator}[role][0])

    assert plain is not None
    (prepare,) = plain["wrappers"]
    assert (prepare["terminal_on_life_loss"], prepare["clip_rewards"]) == (expected, expected)


@needs("cv2")
@needs("ale_py")
@pytest.mark.parametrize(("env_id", "sticky"), [("PongNoFrameskip-v4", 0.0), ("ALE/Pong-v5", 0.25)])
def test_the_preparation_skips_frames_and_the_id_says_whether_actions_stick(env_id: str, sticky: float) -> None:
    env = make("atari", env_id=env_id, frame_stack=3)
    env.reset(seed=0)
    before = env.unwrapped.ale.getEpisodeFrameNumber()
    obs, *_ = env.step(0)

    assert obs.shape == (3, 84, 84) and obs.dtype == np.uint8
    assert env.unwrapped.ale.getEpisodeFrameNumber() - before == 4
    assert env.unwrapped.ale.getFloat("repeat_action_probability") == sticky
    env.close()


@needs("ale_py")
def test_the_manager_of_ale_runs_the_type_atari() -> None:
    factory = EnvFactory(section("atari", env_id="PongNoFrameskip-v4", frame_stack=2, is_train=True))
    with create_env_manager(dict(type="ale_vector", num_threads=1), [factory] * 2) as manager:  # type: ignore[attr-defined]
        manager.seed(0)
        manager.launch()
        batch = manager.step(np.arange(2), np.zeros(2, np.int64))

        assert manager.obs.shape == (2, 2, 84, 84) and manager.obs.dtype == np.uint8
        assert batch.reward.tolist() == [0.0, 0.0]


@needs("ale_py")
def test_frames_in_colour_are_refused_with_what_to_use() -> None:
    assert "create_config.env.type='gymnasium'" in faults("atari", warp_frame=False)


def test_di_engines_name_of_the_manager_of_envpool_is_known() -> None:
    from ding_like.envs.manager.gym_vector import EnvPoolManager
    from ding_like.utils.registries import ENV_MANAGER_REGISTRY

    assert ENV_MANAGER_REGISTRY.get("env_pool") is EnvPoolManager


# --- MinAtar


@needs("minatar")
@pytest.mark.parametrize("game", ["Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders"])
def test_a_small_game_is_that_of_minatar_seen_channel_by_channel(game: str) -> None:
    from minatar import Environment

    env = make("minatar", env_id=f"MinAtar/{game}-v1", kwargs=dict(sticky_action_prob=0.5))
    theirs = Environment({"SpaceInvaders": "space_invaders"}.get(game, game.lower()), sticky_action_prob=0.5)
    theirs.seed(7)
    theirs.reset()
    obs, _ = env.reset(seed=7)
    actions = theirs.minimal_action_set()

    assert env.observation_space.contains(obs) and env.action_space.n == len(actions)
    for step in range(300):
        assert (obs == theirs.state().transpose(2, 0, 1)).all()
        chosen = step % len(actions)
        reward, is_over = theirs.act(actions[chosen])
        obs, own_reward, terminated, truncated, _ = env.step(np.int64(chosen))
        assert (own_reward, terminated, truncated) == (reward, is_over, False)
        if terminated:
            break
    env.close()


@needs("minatar")
@pytest.mark.parametrize(("given", "limit"), [({}, 10_000), ({"max_episode_steps": 50}, 50)])
def test_a_submarine_that_is_never_lost_ends_its_episode(given: dict[str, int], limit: int) -> None:
    env = make("minatar", env_id="MinAtar/Seaquest-v1", **given)
    env.reset(seed=0)
    up = env.unwrapped._actions.index(2)
    for step in range(1, limit + 1):
        *_, terminated, truncated, _ = env.step(np.int64(up))
        assert (terminated, truncated) == (False, step == limit)
    env.close()


@needs("minatar")
def test_a_small_game_shows_each_kind_of_object_in_a_colour_of_its_own() -> None:
    env = gymnasium.make("MinAtar/Breakout-v1", render_mode="rgb_array")
    obs, _ = env.reset(seed=0)
    picture: Any = env.render()

    assert picture.shape == (160, 160, 3) and picture.dtype == np.uint8
    cells = picture[::16, ::16]
    seen = obs.any(axis=0)
    assert (cells[~seen] == 0).all() and len(
        np.unique(cells[seen], axis=0)
    ) == 2  # paddle and bricks, one of which the ball begins on
    env.close()


# --- MiniGrid


@needs("minigrid")
def test_a_grid_world_is_the_view_and_the_letters_of_the_mission() -> None:
    env = make("minigrid", env_id="MiniGrid-DoorKey-5x5-v0")
    from minigrid.wrappers import FlatObsWrapper

    theirs = FlatObsWrapper(gymnasium.make("MiniGrid-DoorKey-5x5-v0"))
    obs, expected = env.reset(seed=3)[0], theirs.reset(seed=3)[0]
    view = 7 * 7 * 3

    assert obs.shape == (2739,) and obs.dtype == np.uint8 and env.observation_space.contains(obs)
    assert (obs[:view] == expected[:view]).all()
    assert (obs[view:].reshape(96, 27) == expected[view:].reshape(96, -1)[:, :27]).all()
    env.close()
    theirs.close()


@needs("minigrid")
def test_a_grid_world_ends_after_max_step_by_a_time_limit() -> None:
    env = make("minigrid", max_step=3)
    env.reset(seed=0)

    assert [env.step(0)[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]
    env.close()


@needs("minigrid")
def test_a_grid_world_may_be_seen_as_an_image() -> None:
    env, plain = make("minigrid", flat_obs=False), gymnasium.make("MiniGrid-Empty-8x8-v0")
    obs, expected = env.reset(seed=1)[0], plain.reset(seed=1)[0]["image"]

    assert env.observation_space.shape == (3, 7, 7) and (obs == expected.transpose(2, 0, 1)).all()
    env.close()
    plain.close()


def grid_setting(**keys: Any) -> EasyDict:
    """Return the section of one collector env of a grid world of type 'gymnasium'."""
    cfg = EasyDict(type="gymnasium", env_id="MiniGrid-DoorKey-6x6-v0", collector_env_num=1, **keys)
    return get_vec_env_setting(cfg, eval_=False)[1][0]


@needs("minigrid")
def test_a_grid_world_of_type_gymnasium_is_seen_as_an_image(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, logger="ding_like")
    monkeypatch.setattr(log, "_warned", set())
    env = make_env(grid_setting(wrappers=[dict(type="frame_stack", stack_size=2)]))

    assert env.observation_space.shape == (2, 3, 7, 7)
    assert [line for line in caplog.messages if "observes a dict with text: the run takes its image" in line]
    env.close()


@needs("minigrid")
@pytest.mark.parametrize("wrapper, shape", [("flat_mission", (2739,)), ("minigrid.wrappers:ImgObsWrapper", (7, 7, 3))])
def test_a_wrapper_that_takes_the_mission_is_left_alone(wrapper: str, shape: tuple[int, ...]) -> None:
    env = make_env(grid_setting(wrappers=[dict(type=wrapper)]))

    assert env.observation_space.shape == shape
    env.close()


@needs("minigrid")
@pytest.mark.usefixtures("in_tmp", "no_pictures")
def test_a_grid_world_of_type_gymnasium_trains_at_the_first_try() -> None:
    env = dict(env_id="MiniGrid-DoorKey-6x6-v0", collector_env_num=2, evaluator_env_num=1, max_episode_steps=10)
    main = dict(exp_name="grid", env=env, policy=dict(collect=dict(n_sample=64), learn=dict(epoch_per_collect=1)))

    serial_pipeline_onpolicy((main, dict(env=dict(type="gymnasium"), policy=dict(type="ppo"))), max_env_step=64)

    assert json.loads(Path("grid/result.json").read_text())["env_step"] == 64


# --- the DeepMind Control Suite


@needs("shimmy")
def test_an_action_of_the_suite_lasts_several_steps_and_an_episode_a_thousand() -> None:
    pytest.importorskip("dm_control")
    env = make("dmc2gym", domain_name="cartpole", task_name="balance", frame_skip=300)
    env.reset(seed=0)
    ends = [env.step(np.zeros(1))[2:4] for _ in range(4)]

    assert ends == [(False, False)] * 3 + [(False, True)], "the time is up, and nothing has ended"
    assert env.observation_space.shape == (5,)
    env.close()


@needs("shimmy")
def test_the_rewards_of_a_repeated_action_are_summed_up() -> None:
    pytest.importorskip("dm_control")
    once, twice = (make("dmc2gym", domain_name="cartpole", task_name="balance", frame_skip=n) for n in (1, 2))
    for env in (once, twice):
        env.reset(seed=0)
    action = np.array([0.3])

    assert twice.step(action)[1] == pytest.approx(once.step(action)[1] + once.step(action)[1])
    once.close()
    twice.close()


def test_a_task_without_a_name_is_refused() -> None:
    said = faults("dmc2gym", domain_name="cartpole")

    assert "env.task_name" in said and "env.domain_name" not in said


@needs("shimmy")
def test_a_task_that_the_suite_lacks_is_answered_with_close_ones() -> None:
    pytest.importorskip("dm_control")
    with pytest.raises(ConfigError, match="did you mean 'dm_control/cartpole-balance"):
        make("dmc2gym", domain_name="cartpole", task_name="balanced")


def test_pictures_of_the_suite_are_stacked_along_channels() -> None:
    from dizoo.dmc2gym.envs import DMC2GymEnv

    plain = DMC2GymEnv.translated(
        dict(domain_name="cartpole", task_name="balance", from_pixels=True, frame_stack=3, warp_frame=True, height=48)
    )

    assert plain["render_mode"] == "rgb_array"
    assert plain["kwargs"]["render_kwargs"] == dict(height=48, width=84, camera_id=0)
    names = [wrapper["type"] for wrapper in plain["wrappers"]]
    assert names[0] == "AddRenderObservation" and names[-2:] == ["frame_stack", "stack_channels"]


class Images(gymnasium.Env[Any, Any]):
    """Show images [2, 3, 4] that count the steps."""

    observation_space = gymnasium.spaces.Box(0, 255, (2, 3, 4), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time = 0
        return self._image(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return self._image(), 0.0, False, False, {}

    def _image(self) -> Any:
        return np.arange(24, dtype=np.uint8).reshape(2, 3, 4) + np.uint8(24 * self.time)


def test_stacked_images_become_one_of_more_channels() -> None:
    env = wrap(Images(), [dict(type="frame_stack", stack_size=2), "stack_channels"])
    env.reset(seed=0)
    obs = env.step(0)[0]

    assert env.observation_space.shape == (4, 3, 4)
    assert obs.reshape(-1).tolist() == list(range(48)), "the older image first"


@pytest.mark.slow
@needs("dm_control")
@pytest.mark.skipif(ctypes.util.find_library("EGL") is None, reason="needs EGL to draw without a display")
def test_pictures_of_the_suite_are_drawn() -> None:
    env = make(
        "dmc2gym", domain_name="cartpole", task_name="balance", from_pixels=True, frame_stack=2, height=32, width=40
    )
    obs, _ = env.reset(seed=0)

    assert obs.shape == (6, 32, 40) and obs.dtype == np.uint8 and obs.std() > 0
    assert (obs[:3] == obs[3:]).all()
    env.close()


# --- simple_spread


@needs("mpe2")
def test_the_teams_state_is_what_di_engine_documents() -> None:
    env = make("petting_zoo", env_family="mpe", env_id="simple_spread_v2", n_agent=3, n_landmark=3, max_cycles=4)
    env.reset(seed=0)
    obs, *_ = env.step([1, 2, 3])
    world = env.unwrapped._env.unwrapped.world

    agents = [np.concatenate([agent.state.p_vel, agent.state.p_pos]) for agent in world.agents]
    places = [mark.state.p_pos for mark in world.landmarks]
    said = [other.state.c for agent in world.agents for other in world.agents if other is not agent]
    assert obs["state"] == pytest.approx(np.concatenate([*agents, *places, *said]), abs=1e-6)
    assert obs["state"].shape == (3 * 4 + 3 * 2 + 3 * 2 * 2,) and obs["agents"].shape == (3, 18)
    assert env.observation_space.contains(obs)
    env.close()


@needs("mpe2")
def test_a_team_and_a_game_of_the_same_type_are_told_apart_by_what_is_imported() -> None:
    team = make("petting_zoo")
    game = make_env(EasyDict(type="petting_zoo", env_id="mpe2.simple_v3"))
    again = make("petting_zoo")

    assert type(team) is type(again) and not isinstance(team, PettingZooGame)
    assert isinstance(game, PettingZooGame)
    for env in (team, game, again):
        env.close()


@needs("mpe2")
@pytest.mark.parametrize("act_scale", [False, True])
def test_agents_that_spread_may_move_continuously(act_scale: bool) -> None:
    from mpe2 import simple_spread_v3

    env = make("petting_zoo", continuous_actions=True, act_scale=act_scale)
    alone = simple_spread_v3.parallel_env(N=3, continuous_actions=True)
    env.reset(seed=3)
    alone.reset(seed=3)
    given = np.random.default_rng(0).uniform(0, 1, (3, 5)).astype(np.float32)
    obs, *_ = env.step((2 * given - 1 if act_scale else given).ravel())
    theirs, *_ = alone.step(dict(zip(alone.possible_agents, given, strict=True)))

    assert env.action_space == gymnasium.spaces.Box(-1.0 if act_scale else 0.0, 1.0, (15,), np.float32)
    assert obs["agents"] == pytest.approx(np.stack(list(theirs.values())).astype(np.float32), abs=1e-5)
    env.close()
    alone.close()


@pytest.mark.parametrize("key", ["act_scale", "agent_specific_global_state", "agent_obs_only"])
def test_keys_of_teams_that_change_nothing_here_are_named(key: str, caplog: pytest.LogCaptureFixture) -> None:
    main = dict(env=dict(collector_env_num=1, evaluator_env_num=1, **{key: True}), policy=dict())
    create = dict(env=dict(type="petting_zoo", import_names=[MODULES["petting_zoo"]]), policy=dict(type="ppo"))
    compile_config(main, create, save=False)

    assert f"env.{key} " in caplog.text and "is True, but" in caplog.text


def test_other_teams_are_refused() -> None:
    for keys, path in [
        (dict(n_landmark=5), "env.n_landmark"),
        (dict(env_id="simple_tag_v2"), "joint_petting_zoo"),
    ]:
        said = faults("petting_zoo", **keys)

        assert path in said and said.startswith("1 problem")
