"""Runs with exploration bonuses: they train, go on exactly, and refuse what does not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ding_like.entry import serial_pipeline, serial_pipeline_onpolicy
from ding_like.errors import ConfigError

pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")
SMALL = dict(hidden_size_list=[8, 8], batch_size=8, update_per_collect=1)


def config(policy: str, reward_model: str, **settings: Any) -> Any:
    main = dict(
        exp_name="run",
        env=dict(collector_env_num=2, evaluator_env_num=1, n_evaluator_episode=1, n_states=5, stop_value=2),
        policy=settings,
        reward_model=SMALL,
    )
    create = dict(
        env=dict(type="chain", import_names=["dizoo.chain.envs.chain_env"]),
        env_manager=dict(type="base"),
        policy=dict(type=policy),
        reward_model=dict(type=reward_model),
    )
    return main, create


NGU = dict(
    burnin_step=1,
    learn_unroll_len=4,
    model=dict(encoder_hidden_size_list=[8], num_arms=3),
    learn=dict(batch_size=4, exploit_share=0.5),
)


@pytest.mark.parametrize(
    ("policy", "reward_model", "settings"),
    [
        ("dqn", "rnd", dict(model=dict(encoder_hidden_size_list=[8]), learn=dict(batch_size=8))),
        ("ngu", "ngu", NGU),
    ],
)
def test_off_policy_runs_log_the_reward_model(policy: str, reward_model: str, settings: dict[str, Any]) -> None:
    settings = {**settings, "learn": {**settings["learn"], "learner": dict(hook=dict(log_show_after_iter=2))}}

    serial_pipeline(config(policy, reward_model, **settings), seed=0, max_env_step=200)

    lines = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert any("reward_model_loss_avg" in line for line in lines)


def test_an_on_policy_run_trains_with_a_bonus() -> None:
    settings = dict(model=dict(encoder_hidden_size_list=[8]), learn=dict(batch_size=8), collect=dict(n_sample=32))

    policy = serial_pipeline_onpolicy(config("ppo", "icm", **settings), seed=0, max_env_step=100)

    assert policy.learn_mode.state_dict()["model"]


@pytest.mark.parametrize(
    ("policy", "reward_model", "settings", "message"),
    [
        ("dqn", "ngu", {}, "reward model 'ngu' takes rows that are sequences.*choose policy 'ngu' or 'r2d2'"),
        ("r2d2", "ngu", {}, "policy.nstep is 5.*set it to 1"),
    ],
)
def test_what_does_not_fit_is_refused(policy: str, reward_model: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        serial_pipeline(config(policy, reward_model, **settings), seed=0, max_env_step=100)
