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


def test_an_env_is_done_after_its_episodes() -> None:
    with scripted(num=1, episode_num=1) as manager:
        manager.launch()
        while not manager.done:
            manager.step({0: 0})

        assert manager.ready_obs == {} and manager.ready_obs_id == []


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
