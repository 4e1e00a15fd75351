"""Runs with hindsight goals: they learn, go on exactly as they were saved, and are refused where they make no sense."""

from __future__ import annotations

import copy
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from ding_like.config import compile_config
from ding_like.entry import parallel_pipeline, serial_pipeline, serial_pipeline_onpolicy
from ding_like.errors import ConfigError

pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")


def configs(**policy: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    main = dict(
        exp_name="run",
        env=dict(n_bits=5, collector_env_num=4, evaluator_env_num=2, n_evaluator_episode=2),
        policy=dict(
            random_collect_size=100,
            model=dict(encoder_hidden_size_list=[16], dueling=False, head_layer_num=0),
            learn=dict(update_per_collect=1, batch_size=32),
            collect=dict(n_sample=8),
            eval=dict(evaluator=dict(eval_freq=10000)),
        ),
    )
    create = dict(
        env=dict(type="bitflip", import_names=["dizoo.bitflip.envs.bitflip_env"]),
        policy=dict(type="dqn"),
        replay_buffer=dict(type="her"),
    )
    for path, value in policy.items():
        section: Any = main["policy"]
        *parents, key = path.split("__")
        for parent in parents:
            section = section.setdefault(parent, {})
        section[key] = value
    return copy.deepcopy(main), create


def test_each_setting_changes_what_is_learned() -> None:
    found = []
    for setting in ({}, dict(k=1), dict(strategy="final"), dict(strategy="episode"), dict(replay_buffer_size=120)):
        policy = serial_pipeline(configs(other__replay_buffer=setting), seed=0, max_env_step=200)
        found.append([value.numpy().tobytes() for value in policy.learn_mode.state_dict()["model"].values()])

    assert all(one != other for one, other in itertools.combinations(found, 2))


@pytest.mark.slow
def test_few_bits_are_learned_with_hindsight_and_not_without() -> None:
    shares = []
    for k in (4, 0):
        main, create = configs(
            discount_factor=0.9,
            learn=dict(update_per_collect=4, batch_size=64, learning_rate=2e-3, target_theta=0.02, loss="huber"),
            other=dict(eps=dict(type="linear", start=1.0, end=0.1, decay=2000), replay_buffer=dict(k=k)),
        )
        main["env"] |= dict(n_bits=6, evaluator_env_num=10, n_evaluator_episode=50)
        serial_pipeline((main, create), seed=0, max_env_step=4200, exp_name=f"k{k}")
        shares.append(json.loads(Path(f"k{k}/result.json").read_text())["eval_value"])

    # Shares of goals that were reached.
    assert shares[0] > 0.4 and shares[1] < 0.25


def test_observations_in_parts_train() -> None:
    main, create = configs(learn__backend="autograd")
    main["env"]["goal_env"] = True

    serial_pipeline((main, create), max_env_step=200)

    assert json.loads(Path("run/result.json").read_text())["train_iter"] > 5


def test_di_engine_s_form_is_read_as_ours() -> None:
    main, create = configs(
        other=dict(
            her=dict(her_strategy="final", her_replay_k=2, episode_size=4, sample_per_episode=8),
            replay_buffer=dict(replay_buffer_size=50),
        ),
        random_collect_size=0,
    )
    main["policy"]["learn"] = dict(update_per_collect=1)
    main["policy"]["collect"] = dict(n_episode=4, unroll_len=1, collector=dict())
    create["collector"] = dict(type="episode")
    create["replay_buffer"] = dict(type="episode")

    cfg = compile_config(main, create)
    serial_pipeline((main, create), max_env_step=200)

    buffer = cfg.policy.other.replay_buffer
    assert (buffer.type, buffer.strategy, buffer.k, buffer.size_unit) == ("her", "final", 2, "episodes")
    assert cfg.policy.learn.batch_size == 32
    assert json.loads(next(Path().glob("run*/result.json")).read_text())["train_iter"] > 5


def test_a_section_her_that_is_wrong_is_refused() -> None:
    for her, said in [
        (dict(her_stategy="final"), "her.her_stategy +unknown key; did you mean 'her_strategy'"),
        (dict(her_strategy="last"), "strategy +is 'last', expected 'future'"),
        (dict(episode_size=0), "her.episode_size +is 0, expected a whole number"),
        (3, r"expected a section, dict\(her_strategy"),
    ]:
        with pytest.raises(ConfigError, match=said):
            compile_config(*configs(other=dict(her=her)))


def test_what_hindsight_has_no_use_for_is_refused() -> None:
    for policy, said in [
        (dict(nstep=3), "policy.nstep +is 3, but buffer 'her'"),
        (dict(priority=True), "policy.priority +is True, but buffer 'her' draws rows evenly"),
        (dict(other__replay_buffer=dict(strategy="any")), "strategy +is 'any', expected 'future', 'final', 'episode'"),
    ]:
        with pytest.raises(ConfigError, match=said):
            serial_pipeline(configs(**policy), max_env_step=100)


def test_an_on_policy_policy_is_refused() -> None:
    main, create = configs()
    main["policy"] = {}

    with pytest.raises(ConfigError, match="is 'her', but policy 'ppo' is on-policy"):
        serial_pipeline_onpolicy((main, {**create, "policy": dict(type="ppo")}), max_env_step=100)


def test_an_env_without_goals_is_refused_before_anything_is_collected() -> None:
    main, create = configs()
    main["env"] = dict(env_id="CartPole-v1", collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2)

    with pytest.raises(ConfigError, match="needs an env with compute_reward"):
        serial_pipeline((main, {**create, "env": dict(type="gymnasium")}), max_env_step=100)


def test_mode_parallel_says_why_it_cannot() -> None:
    with pytest.raises(ConfigError, match="looks into rows when it draws, but mode parallel"):
        parallel_pipeline((*configs(), {}), max_env_step=100)
