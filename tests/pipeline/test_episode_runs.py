"""Runs that collect whole episodes, and a resumed run on observations that are whole numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ding_like.data.batch import EpisodeBatch
from ding_like.entry import serial_pipeline, serial_pipeline_onpolicy
from ding_like.errors import ConfigError
from ding_like.policy.dqn import DQNPolicy
from ding_like.utils.registries import POLICY_REGISTRY

pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")


def make_configs(policy: str, *, env_id: str = "CartPole-v1", **collect: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    main = dict(
        exp_name="exp",
        env=dict(env_id=env_id, collector_env_num=2, evaluator_env_num=1, n_evaluator_episode=1, stop_value=1e9),
        policy=dict(learn=dict(batch_size=16), collect=collect, eval=dict(evaluator=dict(eval_freq=1000))),
    )
    return main, dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type=policy))


@pytest.mark.parametrize("policy", ["dqn", "ppo"])
def test_episodes_are_collected_and_learned_from(policy: str, tmp_path: Path) -> None:
    run = serial_pipeline if policy == "dqn" else serial_pipeline_onpolicy
    main, create = make_configs(policy, n_episode=3, collector=dict(get_train_sample=True))
    create["collector"] = dict(type="episode")

    run((main, create), seed=0, max_env_step=300)

    result = json.loads((tmp_path / "exp/result.json").read_text())
    assert result["env_step"] >= 300 and result["train_iter"] > 5


def test_fewer_episodes_than_envs_are_refused_with_a_way_out() -> None:
    main, create = make_configs("ppo", n_episode=1, collector=dict(get_train_sample=True))
    create["collector"] = dict(type="episode")

    with pytest.raises(ConfigError, match="lower env.collector_env_num"):
        serial_pipeline_onpolicy((main, create), seed=0, max_env_step=100)


def test_whole_episodes_where_rows_are_learned_from_are_refused_with_a_way_out() -> None:
    main, create = make_configs("ppo", n_episode=3)
    create["collector"] = dict(type="episode")

    with pytest.raises(ConfigError, match="get_train_sample is False.*Set it to True"):
        serial_pipeline_onpolicy((main, create), seed=0, max_env_step=100)


def test_a_buffer_is_filled_by_random_episodes_too(tmp_path: Path) -> None:
    main, create = make_configs("dqn", n_episode=3, collector=dict(get_train_sample=True))
    main["policy"]["random_collect_size"] = 60
    create["collector"] = dict(type="episode")

    serial_pipeline((main, create), seed=0, max_env_step=150)

    assert json.loads((tmp_path / "exp/result.json").read_text())["train_iter"] > 0


@pytest.mark.parametrize("policy", ["drqn", "dqn"])
def test_a_shipped_policy_learns_from_an_episode_buffer(policy: str, tmp_path: Path) -> None:
    main, create = make_configs(policy, n_episode=4, collector=dict(get_train_sample=True))
    main["policy"]["learn"]["batch_size"] = 4  # episodes
    main["policy"]["other"] = dict(replay_buffer=dict(type="episode", replay_buffer_size=100))
    create["collector"] = dict(type="episode")

    serial_pipeline((main, create), seed=0, max_env_step=600)

    result = json.loads((tmp_path / "exp/result.json").read_text())
    assert result["env_step"] >= 600 and result["train_iter"] > 5


@POLICY_REGISTRY.register("learns_from_episodes")
class LearnsFromEpisodes(DQNPolicy):
    config: ClassVar[dict[str, Any]] = dict(type="learns_from_episodes")
    sample_unit = "episode"

    def grad(self, batch: Any) -> Any:
        assert isinstance(batch, EpisodeBatch) and len(batch) == 4
        assert all(episode["episode_id"].min() == episode["episode_id"].max() for episode in batch)
        return super().grad(batch.batch)


def test_a_policy_of_whole_episodes_is_given_them(tmp_path: Path) -> None:
    main, create = make_configs("learns_from_episodes", n_episode=4, collector=dict(get_train_sample=True))
    main["policy"]["learn"]["batch_size"] = 4
    main["policy"]["other"] = dict(replay_buffer=dict(type="episode"))
    create["collector"] = dict(type="episode")

    serial_pipeline((main, create), seed=0, max_env_step=300)

    assert json.loads((tmp_path / "exp/result.json").read_text())["train_iter"] > 5


def test_an_episode_buffer_needs_whole_episodes_and_no_padding() -> None:
    main, create = make_configs("dqn")
    main["policy"]["other"] = dict(replay_buffer=dict(type="episode"))

    with pytest.raises(ConfigError, match="collector 'sample' cuts them. Set create_config.collector.type"):
        serial_pipeline((main, create), seed=0, max_env_step=100)

    main["policy"]["other"]["replay_buffer"]["padding"] = True
    with pytest.raises(ConfigError, match="padding is True"):
        serial_pipeline((main, create), seed=0, max_env_step=100)
