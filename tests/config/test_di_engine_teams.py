"""Configs of teams written for DI-engine: `multi_agent=True` names the policy of teams, and the env says the sizes."""

from __future__ import annotations

import copy
import importlib.util
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from ding_like.config import compile_config, deep_merge, read_config, to_plain
from ding_like.config.di_engine_teams import OF_TEAMS, read_multi_agent
from ding_like.entry import serial_pipeline, serial_pipeline_onpolicy

FOLDER = Path(__file__).parent / "di_engine_teams"
# File -> the policy that it is read as.
FILES = {
    "ptz_simple_spread_mappo": "mappo",
    "ptz_simple_spread_qmix": "qmix",
    "ptz_simple_spread_maddpg": "maddpg",
}


def read(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    file = read_config(FOLDER / f"{name}_config.py")
    return to_plain(file.main_config), to_plain(file.create_config)


def translated(main: Any, create: Any) -> tuple[Any, Any]:
    main, create = copy.deepcopy(main), copy.deepcopy(create)
    read_multi_agent(main, create, quiet=False)
    return main, create


@pytest.mark.parametrize("theirs", OF_TEAMS)
def test_a_policy_of_several_agents_is_the_one_of_teams(theirs: str, caplog: pytest.LogCaptureFixture) -> None:
    sizes = dict(agent_num=3, agent_obs_shape=18, global_obs_shape=30, obs_shape=18, action_shape=5)
    main = dict(policy=dict(multi_agent=True, model=dict(**sizes, activation="relu")))
    with caplog.at_level(logging.INFO, "ding_like"):
        found, create = translated(main, dict(policy=dict(type=theirs)))

    assert create == dict(policy=dict(type=OF_TEAMS[theirs]))
    assert found == dict(policy=dict(model=dict(activation="relu")))
    (line,) = caplog.messages
    assert f"read as policy.type='{OF_TEAMS[theirs]}', as policy.multi_agent is True; the env says" in line
    assert all(f"policy.model.{key}" in line for key in sizes)


@pytest.mark.parametrize(
    ("policy", "kind"),
    [
        (dict(multi_agent=False, model=dict(obs_shape=4)), "ppo"),
        (dict(model=dict(obs_shape=4)), "sac"),
        (dict(model=dict(obs_shape={"agents": [2, 3], "state": 4})), "qmix"),
        (dict(multi_agent=True), "impala"),
    ],
)
def test_other_configs_stay_as_they_are(policy: dict[str, Any], kind: str) -> None:
    main, create = dict(policy=policy), dict(policy=dict(type=kind))

    assert translated(main, create) == (main, create)


def test_independent_q_learning_needs_no_key_and_a_model_of_the_users_own_keeps_its_sizes() -> None:
    main = dict(policy=dict(model=dict(type="mine", obs_shape=18)))

    assert translated(main, dict(policy=dict(type="madqn_command"))) == (main, dict(policy=dict(type="idqn")))


def test_sizes_of_one_agent_are_left_to_the_env_by_a_policy_that_both_have() -> None:
    sizes = dict(agent_num=3, obs_shape=18, global_obs_shape=30, action_shape=5)

    for kind in ("vdn", "qmix", "coma"):
        main, _ = translated(dict(policy=dict(model=dict(**sizes, mixer=True))), dict(policy=dict(type=kind)))
        assert main["policy"]["model"] == dict(mixer=True)


@pytest.mark.parametrize(
    ("kind", "learn", "read_as"),
    [
        ("wqmix", dict(w=0.3, wqmix_ow=False), dict(alpha=0.3, weighting="centrally")),
        ("wqmix", dict(wqmix_ow=True), dict(weighting="optimistically")),
        ("wqmix", dict(w=0.3, alpha=0.1), dict(w=0.3, alpha=0.1)),
        ("qtran", dict(td_weight=1, opt_weight=0.1), dict(opt_weight=0.1)),
        ("qtran", dict(td_weight=2), dict(td_weight=2)),
        ("qmix", dict(w=0.3), dict(w=0.3)),
    ],
)
def test_weights_of_losses_have_other_names(kind: str, learn: dict[str, Any], read_as: dict[str, Any]) -> None:
    main, _ = translated(dict(policy=dict(learn=learn)), dict(policy=dict(type=kind)))

    assert main["policy"]["learn"] == read_as


@pytest.mark.parametrize(
    ("given", "actor", "critic"),
    [
        (dict(actor_head_hidden_size=64, critic_head_hidden_size=32), [64, 64], [32, 32]),
        (dict(encoder_hidden_size_list=[128, 64], action_space="discrete"), [128, 64], [128, 64]),
        (dict(encoder_hidden_size_list=[128], actor_head_hidden_size=8, actor_head_layer_num=2), [128, 8, 8], [128]),
    ],
)
def test_layers_of_actors_and_critics_are_lists(given: dict[str, Any], actor: list[int], critic: list[int]) -> None:
    main, _ = translated(dict(policy=dict(multi_agent=True, model=given)), dict(policy=dict(type="td3")))

    assert main["policy"]["model"] == dict(actor_hidden_size_list=actor, critic_hidden_size_list=critic)


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_read_as_its_policy_of_teams(name: str) -> None:
    main, create = translated(*read(name))

    assert create["policy"]["type"] == FILES[name]
    assert "multi_agent" not in main["policy"]
    sizes = {"agent_num", "obs_shape", "agent_obs_shape", "global_obs_shape", "action_shape"}
    assert not sizes & main["policy"]["model"].keys()


SMALL: dict[str, dict[str, Any]] = {
    "mappo": dict(learn=dict(epoch_per_collect=1, batch_size=60), collect=dict(n_sample=60)),
    "qmix": dict(learn=dict(update_per_collect=1), collect=dict(n_sample=60)),
    "maddpg": dict(learn=dict(update_per_collect=1, batch_size=32), collect=dict(n_sample=60)),
}


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mpe2") is None, reason="needs mpe2")
@pytest.mark.usefixtures("in_tmp", "no_pictures")
@pytest.mark.parametrize("name", FILES)
def test_a_file_trains(name: str, caplog: pytest.LogCaptureFixture) -> None:
    kind = FILES[name]
    main, create = read(name)
    # Nothing is an error, and what has no effect is named.
    compile_config(main, create, save=False)
    small = dict(env=dict(collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2), policy=SMALL[kind])
    main, create = deep_merge(main, small), {**create, "env_manager": dict(type="base")}
    train = serial_pipeline_onpolicy if kind == "mappo" else serial_pipeline

    train((main, create), seed=0, max_train_iter=3, max_env_step=400)

    found = json.loads(Path(main["exp_name"], "result.json").read_text())
    assert found["policy"] == kind and found["train_iter"] > 0
    assert set(found["eval_metrics"]) == {f"return_agent_{agent}" for agent in range(3)}
