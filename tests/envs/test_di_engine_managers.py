"""Managers with DI-engine's interface, by themselves and in the hands of collectors and evaluators."""

from __future__ import annotations

import functools
import logging
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from ding_like.envs import (
    AsyncSubprocessEnvManager,
    BaseEnv,
    BaseEnvManager,
    BaseEnvManagerV2,
    BaseEnvTimestep,
    DingEnvWrapper,
    EnvFactory,
    SyncSubprocessEnvManager,
    create_env_manager,
    get_env_manager_cls,
)
from ding_like.errors import ConfigError, EnvError
from ding_like.policy import DQNPolicy
from ding_like.worker import InteractionSerialEvaluator, SampleSerialCollector
from tests.envs.faulty_env import DeadlyEnv
from tests.envs.scripted_env import ScriptedEnv

CARTPOLE = functools.partial(gymnasium.make, "CartPole-v1")


def scripted(cls: type[BaseEnvManager] = BaseEnvManager, num: int = 2, **cfg: Any) -> BaseEnvManager:
    return cls([functools.partial(ScriptedEnv, index) for index in range(num)], cfg)


@pytest.mark.parametrize("cls", [BaseEnvManager, SyncSubprocessEnvManager])
def test_envs_are_stepped_by_id(cls: type[BaseEnvManager]) -> None:
    with scripted(cls) as manager:
        manager.launch()

        timesteps = manager.step({1: 2})

        assert manager.ready_obs_id == [0, 1] and manager.env_num == 2
        assert list(timesteps) == [1] and timesteps[1].obs[2] == 1
        assert {index: obs[2] for index, obs in manager.ready_obs.items()} == {0: 0, 1: 1}
    assert manager.closed


def test_the_defaults_build_a_manager() -> None:
    cfg = BaseEnvManager.default_config()

    manager = BaseEnvManager([ScriptedEnv], cfg)

    assert cfg.cfg_type == "BaseEnvManagerDict" and cfg.auto_reset and not manager.closed
    manager.close()


def test_without_auto_reset_an_ended_env_waits_for_reset() -> None:
    with scripted(auto_reset=False) as manager:
        manager.launch()
        for _ in range(3):  # a scripted env's first episode
            timesteps = manager.step({0: 0})

        waiting = manager.ready_obs_id
        manager.reset({0: None})

        assert timesteps[0].done and waiting == [1] and sorted(manager.ready_obs) == [0, 1]


def test_an_unknown_key_names_the_closest_one() -> None:
    with pytest.raises(ConfigError, match="'reseed_aftr'.*did you mean 'reseed_after'"):
        scripted(reseed_aftr=3)


def test_deadlines_of_di_engine_hold_and_keys_without_use_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env_fn = functools.partial(DeadlyEnv, faults={(0, 1): "hang"}, fault_dir=str(tmp_path))
    cfg = dict(step_timeout=0.3, reset_timeout=None, copy_on_get=False)
    with caplog.at_level(logging.WARNING), SyncSubprocessEnvManager([env_fn], cfg) as manager:
        manager.launch()

        assert manager.step({0: 0})[0].info["abnormal"]

    assert "a step took over 0.3 s" in caplog.text
    assert "copy_on_get is ignored" in caplog.text


def test_the_second_version_stacks_observations_and_takes_actions_in_their_order() -> None:
    with scripted(BaseEnvManagerV2, num=3) as manager:
        manager.launch()

        obs = manager.ready_obs
        timesteps = manager.step(np.array([1, 0, 2]))

        assert obs.shape == (3, 4) and obs[:, 0].tolist() == [0, 1, 2]
        assert [step.env_id for step in timesteps] == [0, 1, 2] and [step.obs[2] for step in timesteps] == [1, 1, 1]
        with pytest.raises(EnvError, match="2 actions for 3 envs"):
            manager.step([0, 1])


def test_classes_go_by_di_engines_types() -> None:
    for name, cls in [
        ("base", BaseEnvManager),
        ("subprocess", SyncSubprocessEnvManager),
        ("async_subprocess", AsyncSubprocessEnvManager),
    ]:
        assert get_env_manager_cls({"type": name}) is cls


def rows_of(manager: Any, folder: Path) -> Any:
    cfg = DQNPolicy.default_config()
    cfg.model.update(obs_shape=4, action_shape=2, encoder_hidden_size_list=[8])
    policy = DQNPolicy(cfg)
    for parameter in policy.get_attribute("model").parameters():
        parameter.data.fill_(0.01)
    manager.seed(3)
    collector = SampleSerialCollector(
        SampleSerialCollector.default_config(), manager, policy.collect_mode, exp_name=str(folder)
    )
    rows = collector.collect(n_sample=64, policy_kwargs={"eps": 0.5})
    collector.close()
    return rows


def test_a_collector_makes_the_same_rows_as_with_our_manager(tmp_path: Path) -> None:
    theirs = rows_of(BaseEnvManager([CARTPOLE] * 2, {}), tmp_path / "theirs")
    ours = rows_of(create_env_manager({"type": "base"}, [CARTPOLE] * 2), tmp_path / "ours")

    assert len(theirs) == 64
    assert all(np.array_equal(theirs[name], ours[name]) for name in ours.columns)


class Counting(BaseEnv):
    """Observe the number of steps; an env in DI-engine's style that records itself."""

    def __init__(self, cfg: Any) -> None:
        self._observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
        self._action_space = gymnasium.spaces.Discrete(2)

    def reset(self) -> Any:
        self.steps = 0
        return np.zeros(1, np.float32)

    def step(self, action: Any) -> BaseEnvTimestep:
        self.steps += 1
        return BaseEnvTimestep(np.array([self.steps], np.float32), 1.0, self.steps == 4, {})

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        pass

    def close(self) -> None:
        pass

    def enable_save_replay(self, replay_path: str) -> None:
        Path(replay_path).mkdir(parents=True)
        Path(replay_path, "own.txt").write_text("recorded", "utf-8")


@pytest.mark.parametrize("cls", [BaseEnvManager, pytest.param(SyncSubprocessEnvManager, marks=pytest.mark.slow)])
def test_every_env_is_recorded(cls: type[BaseEnvManager], tmp_path: Path) -> None:
    makers = [CARTPOLE, lambda: DingEnvWrapper(cfg=dict(env_id="CartPole-v1"))]

    with cls(makers, {}) as manager:
        manager.seed(0)
        manager.enable_save_replay(str(tmp_path / "video"))
        manager.launch()
        for _ in range(15):  # pushed one way, a pole falls after about nine steps
            manager.step(dict.fromkeys(manager.ready_obs, 1))

    assert all((tmp_path / f"video/env_{index}/episode_0.gif").is_file() for index in range(2))


def test_an_evaluator_records_what_it_plays(tmp_path: Path) -> None:
    cfg = DQNPolicy.default_config()
    cfg.model.update(obs_shape=4, action_shape=2, encoder_hidden_size_list=[8])
    manager = BaseEnvManager([CARTPOLE], {})
    manager.enable_save_replay(str(tmp_path / "video"))
    evaluator = InteractionSerialEvaluator(
        {**InteractionSerialEvaluator.config, "n_episode": 1}, manager, DQNPolicy(cfg).eval_mode, exp_name=str(tmp_path)
    )

    _, info = evaluator.eval()
    evaluator.close()

    assert len(info["eval_episode_return"]) == 1 and list((tmp_path / "video").glob("episode_*.gif"))


def test_an_env_that_records_itself_is_asked_to(tmp_path: Path) -> None:
    with BaseEnvManager([functools.partial(Counting, {})], {}) as manager:
        manager.enable_save_replay([str(tmp_path / "mine")])

    assert (tmp_path / "mine/own.txt").read_text("utf-8") == "recorded"


def test_recording_begins_before_launch_or_not_at_all() -> None:
    with scripted() as manager:
        manager.launch()

        with pytest.raises(EnvError, match="before launch"):
            manager.enable_save_replay("video")


# --- over any array manager


class VectorEnvManager(BaseEnvManager):
    manager_type = "gym_vector"


VIEWED: dict[str, tuple[type[BaseEnvManager], dict[str, Any]]] = {
    "base": (BaseEnvManager, {}),
    "next step": (VectorEnvManager, dict(autoreset_mode="NextStep")),
    "same step": (VectorEnvManager, dict(autoreset_mode="SameStep")),
}


def view(kind: str = "base", num: int = 3, episode_num: float = float("inf"), **kwargs: Any) -> BaseEnvManager:
    env_fn = [functools.partial(ScriptedEnv, lane, **kwargs) for lane in range(num)]
    cls, cfg = VIEWED[kind]
    return cls(env_fn, dict(cfg, episode_num=episode_num))


@pytest.mark.parametrize("kind", VIEWED)
def test_every_env_plays_its_episodes_and_is_done(kind: str) -> None:
    env = view(kind, episode_num=2, script=((2, "terminated"), (3, "truncated")))
    env.launch()

    ends: list[tuple[int, Any]] = []
    while not env.done:
        timesteps = env.step(dict.fromkeys(env.ready_obs, 1))
        ends += [(index, t.info) for index, t in timesteps.items() if t.done]

    assert env.ready_obs == {}
    assert sorted(index for index, _ in ends) == [0, 0, 1, 1, 2, 2]
    first, second = (info for index, info in ends if index == 0)
    # Rewards of the scripted env are 10 * episode + step.
    assert first["eval_episode_return"] == 1 + 2 and first["TimeLimit.truncated"] is False
    assert second["eval_episode_return"] == 11 + 12 + 13 and second["TimeLimit.truncated"] is True


def test_a_timestep_holds_the_true_last_observation_a_reward_of_one_number_and_memory_of_its_own() -> None:
    env = view(num=1, script=((1, "terminated"),))
    env.launch()
    before = env.ready_obs[0]

    timestep = env.step({0: 2})[0]

    assert timestep.done is True
    assert timestep.obs[:3].tolist() == [0, 0, 1]
    assert timestep.reward.tolist() == [1.0] and timestep.reward.dtype == np.float32
    assert env.ready_obs[0][:3].tolist() == [0, 1, 0]
    for _ in range(3):
        env.step({0: 1})
    assert before[:3].tolist() == [0, 0, 0] and timestep.obs[:3].tolist() == [0, 0, 1]


def test_an_envs_own_return_is_kept() -> None:
    cfg = dict(type="tests.envs.my_envs:DiEngineStyleWalk", width=1)
    env = BaseEnvManager([EnvFactory(cfg)])
    env.launch()

    assert env.step({0: 1})[0].info["eval_episode_return"] == 42.0


def test_a_broken_env_answers_abnormal_and_its_return_starts_anew(tmp_path: Any) -> None:
    env = view(num=1, script=((3, "terminated"),), faults={(0, 2): "raise"}, fault_dir=str(tmp_path))
    env.launch()

    answers = [env.step({0: 0})[0] for _ in range(5)]

    assert [t.info.get("abnormal", False) for t in answers] == [False, True, False, False, False]
    assert answers[-1].info["eval_episode_return"] == 1 + 2 + 3


def test_an_env_that_is_done_cannot_be_stepped_until_a_reset_gives_it_its_episodes_again() -> None:
    env = view(num=2, episode_num=1, script=((1, "terminated"),))
    env.launch()
    env.step({0: 0})
    with pytest.raises(EnvError, match=r"envs \[0\] have had their 1 episodes"):
        env.step({0: 0, 1: 0})
    env.step({1: 0})
    assert env.done

    env.reset()

    assert not env.done and list(env.ready_obs) == [0, 1]


def test_reset_of_some_envs_leaves_the_others() -> None:
    env = view(script=((9, "terminated"),))
    env.launch()
    env.step({0: 0, 1: 0, 2: 0})

    env.reset({1: None})

    assert [int(obs[2]) for obs in env.ready_obs.values()] == [1, 0, 1]


class Resets:
    """Manager over envs that record how they were reset."""

    def __init__(self, num: int) -> None:
        self.envs = [ScriptedEnv(lane) for lane in range(num)]
        unmade = iter(self.envs)
        self.manager = BaseEnvManager([lambda: next(unmade)] * num)

    @property
    def seeds(self) -> list[int | None]:
        return [env.resets[-1] for env in self.envs]


@pytest.mark.parametrize(
    ("seed", "seeds"), [(10, [10, 11, 12]), ([5, 3, 1], [5, 3, 1]), ({0: 4, 1: 4, 2: 9}, [4, 4, 9])]
)
def test_seeds_are_a_number_a_list_or_a_dict_and_hold_for_one_reset(seed: Any, seeds: list[int]) -> None:
    envs = Resets(3)
    envs.manager.seed(seed)
    envs.manager.launch()
    assert envs.seeds == seeds

    envs.manager.reset()

    assert not set(envs.seeds) & set(seeds)


def test_static_seeds_repeat_and_those_for_envs_that_do_not_exist_are_refused() -> None:
    envs = Resets(2)
    envs.manager.seed(10, dynamic_seed=False)
    envs.manager.launch()

    envs.manager.reset()

    assert envs.seeds == [10, 11]
    with pytest.raises(EnvError, match="envs 0 to 1"):
        envs.manager.seed([1, 2, 3])
