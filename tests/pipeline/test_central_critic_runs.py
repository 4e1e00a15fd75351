"""Runs of teams with central critics: they find known optima, agents leave meanwhile, and a resume goes on exactly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ding_like.entry import resume_pipeline, serial_pipeline
from ding_like.types import Config
from tests.contracts.policy_cases import assert_equal_states

pytestmark = [pytest.mark.usefixtures("in_tmp", "no_pictures"), pytest.mark.slow]

SUM = dict(type="tests.policy.sum_game:SumGame")
MATRIX = dict(type="team_matrix_game", import_names=["dizoo.multi_agent.team_matrix_game"])
TWO_STEP = dict(type="two_step_game", import_names=["dizoo.multi_agent.two_step_game"])
SWITCH = dict(type="switch_game", import_names=["dizoo.multi_agent.switch_game"])


def configs(policy: str, env: dict[str, Any], *, env_settings: Any = None, **section: Any) -> tuple[Config, Config]:
    """Return small configs of a team."""
    model = dict(actor_hidden_size_list=[32, 32], critic_hidden_size_list=[32, 32])
    learn = dict(update_per_collect=8, batch_size=64, **section.pop("learn", {}))
    envs = dict(collector_env_num=4, evaluator_env_num=4, n_evaluator_episode=40, **(env_settings or {}))
    main = dict(
        exp_name="exp",
        env=envs,
        policy=dict(
            random_collect_size=200,
            model=model,
            learn=learn,
            collect=dict(n_sample=8),
            eval=dict(evaluator=dict(eval_freq=500)),
            **section,
        ),
    )
    return main, dict(env=env, env_manager=dict(type="base"), policy=dict(type=policy))


def last_evaluation() -> list[float]:
    """Return the returns of the last evaluation."""
    found: list[float] = json.loads(Path("exp/result.json").read_text())["eval_value_raw"]
    return found


@pytest.mark.parametrize("policy", ["maddpg", "matd3", "masac"])
def test_actions_come_to_add_up_to_the_target(policy: str) -> None:
    learn = dict(learning_rate=1e-3, **(dict(target_entropy=-3.0) if policy == "masac" else {}))
    serial_pipeline(configs(policy, SUM, learn=learn), seed=0, max_env_step=3000)

    # Of random actions it is -2.4, and -1.1 of none at all.
    assert sum(last_evaluation()) / 40 > -0.03


@pytest.mark.parametrize("game", ["matrix", "two steps"])
@pytest.mark.parametrize("policy", ["maddpg", "masac_discrete"])
def test_the_best_joint_action_is_found_where_each_step_to_it_pays(policy: str, game: str) -> None:
    env, settings = (MATRIX, dict(game="monotonic")) if game == "matrix" else (TWO_STEP, {})
    learn = dict(learning_rate=1e-3, **(dict(target_entropy=0.1) if policy == "masac_discrete" else {}))
    serial_pipeline(
        configs(policy, env, env_settings=settings, learn=learn, discount_factor=0.99), seed=0, max_env_step=2400
    )

    assert set(last_evaluation()) == {8.0}


@pytest.mark.parametrize(
    ("policy", "env"), [("maddpg", SWITCH), ("matd3", SUM), ("masac_discrete", SWITCH), ("masac", SUM)]
)
def test_a_run_in_two_parts_equals_one_in_one(policy: str, env: dict[str, Any]) -> None:
    made = lambda: configs(policy, env)  # noqa: E731

    whole = serial_pipeline(made(), seed=3, max_env_step=400, exp_name="whole")
    serial_pipeline(made(), seed=3, max_env_step=280, exp_name="parts")
    resumed = resume_pipeline("parts", max_env_step=400)

    assert_equal_states(whole.learn_mode.state_dict(), resumed.learn_mode.state_dict())
    assert json.loads(Path("parts/result.json").read_text())["train_iter"] > 10
