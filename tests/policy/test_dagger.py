"""DAgger: a collector mixes expert and learner by beta, and every row is labelled with the expert's action."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ding_like
from ding_like.agent.loaded import load as load_agent
from ding_like.config import compile_config, deep_merge, to_plain
from ding_like.data.batch import TransitionBatch
from ding_like.entry import parallel_pipeline, resume_pipeline, serial_pipeline
from ding_like.errors import CheckpointError, ConfigError, SchemaError
from ding_like.pipeline.expert import load_expert
from ding_like.policy.dagger import DAggerPolicy
from tests.contracts.policy_cases import assert_equal_states

LANES = 4000


class ScriptedExpert:
    """Expert that acts by the sign of the first number of an observation."""

    def act(self, obs: Any, **given: Any) -> dict[str, np.ndarray]:
        assert "beta" not in given, "the setting is the learner's"
        return {"action": np.where(obs[:, 0] > 0, 3, 2).astype(np.int64)}

    def reset(self, lanes: Any = None) -> None:
        self.num_resets = getattr(self, "num_resets", 0) + 1

    def state_dict(self) -> dict[str, Any]:
        return {"count": np.array([7])}

    def load_state_dict(self, state: Any) -> None:
        self.loaded = state


def make(**changes: Any) -> DAggerPolicy:
    torch.manual_seed(0)
    model = dict(obs_shape=3, action_shape=4, encoder_hidden_size_list=[8], head_layer_num=0)
    return DAggerPolicy(deep_merge(to_plain(DAggerPolicy.default_config()), deep_merge(dict(model=model), changes)))


def act(policy: DAggerPolicy, beta: float) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    obs = np.random.default_rng(1).normal(size=(LANES, 3)).astype(np.float32)
    given: dict[str, Any] = dict(lanes=np.arange(LANES), is_first=np.ones(LANES, bool), rng=np.random.default_rng(2))
    return obs, policy.collect_mode.actor.act(obs, **given, beta=beta)


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_the_expert_acts_with_probability_beta_and_labels_every_row(beta: float) -> None:
    policy = make()
    policy.use_expert(ScriptedExpert())
    policy._model.actor_head.main[-1].bias.data[:2] += 100.0  # the learner takes 0 or 1, and so never the expert's

    obs, columns = act(policy, beta)

    label = np.where(obs[:, 0] > 0, 3, 2)
    assert (columns["expert_action"] == label).all()
    assert np.isin(columns["action"], [0, 1]).mean() == pytest.approx(1 - beta, abs=0.03)
    taken = columns["action"] >= 2
    assert (columns["action"][taken] == label[taken]).all()


def test_beta_falls_with_the_env_steps() -> None:
    exp = make(other=dict(beta=dict(start=0.9, end=0.1, decay=100)))
    linear = make(other=dict(beta=dict(type="linear", start=0.9, end=0.1, decay=100)))

    for step in (0, 50, 100, 1000):
        of_exp, of_linear = (
            policy.command_mode.get_setting_collect({"envstep": step})["beta"] for policy in (exp, linear)
        )
        assert of_exp == pytest.approx(0.1 + 0.8 * math.exp(-step / 100))
        assert of_linear == pytest.approx(max(0.1, 0.9 - 0.8 * step / 100))


def test_it_learns_the_labels_and_not_what_was_played() -> None:
    policy, rng = make(learn=dict(learning_rate=0.02)), np.random.default_rng(0)
    obs = rng.normal(size=(64, 3)).astype(np.float32)
    label = np.where(obs[:, 0] > 0, 3, 2)
    batch = TransitionBatch({"obs": obs, "action": rng.integers(2, size=64), "expert_action": label})

    for _ in range(300):
        policy.learn_mode.grad(batch)
        policy.learn_mode.apply()

    assert float(policy.learn_mode.grad(batch)[0]["accuracy"]) > 0.95


def test_the_expert_is_reset_and_saved_with_the_collector() -> None:
    policy, expert = make(), ScriptedExpert()
    policy.use_expert(expert)
    actor = policy.collect_mode.actor

    actor.reset(np.array([1]))
    state = actor.state_dict()
    actor.load_state_dict(state)

    assert expert.num_resets == 1 and (expert.loaded["count"] == 7).all()


def test_without_an_expert_the_learner_acts_alone_and_rows_teach_nothing() -> None:
    policy = make()
    columns = act(policy, 0.5)[1]

    assert columns.keys() == {"action"}
    with pytest.raises(SchemaError, match="no column 'expert_action'.*given no expert"):
        policy.learn_mode.grad(TransitionBatch({"obs": np.zeros((2, 3), np.float32), "action": np.zeros(2, np.int64)}))


# ---- runs

ENV = dict(env_id="CartPole-v1", collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2)


def configs(**policy: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    own = dict(
        model=dict(encoder_hidden_size_list=[16], head_layer_num=0),
        learn=dict(update_per_collect=4, batch_size=16),
        collect=dict(n_sample=16, model_path="expert"),
        eval=dict(evaluator=dict(eval_freq=1000)),
        other=dict(beta=dict(decay=100)),
    )
    create = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="dagger"))
    return dict(exp_name="run", env=dict(ENV), policy=deep_merge(own, policy)), create


@pytest.fixture
def expert(in_tmp: Path, no_pictures: None) -> Path:
    """Return the folder of a run of DQN that has learned a little."""
    create = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="dqn"))
    policy = dict(learn=dict(batch_size=16), eval=dict(evaluator=dict(eval_freq=50)))
    serial_pipeline((dict(exp_name="expert", env=dict(ENV), policy=policy), create), seed=1, max_env_step=300)
    return in_tmp / "expert"


def test_a_run_learns_what_the_expert_of_another_run_does(expert: Path) -> None:
    policy = serial_pipeline(configs(), seed=0, max_env_step=1500)

    obs = np.random.default_rng(0).normal(size=(400, 4)).astype(np.float32) * [0.3, 0.5, 0.05, 0.5]
    obs = obs.astype(np.float32)
    theirs = load_agent(expert).act(obs)
    given: dict[str, Any] = dict(lanes=np.arange(400), is_first=np.ones(400, bool), rng=np.random.default_rng(0))
    own = policy.eval_mode.actor.act(obs, **given)["action"]
    assert (own == theirs).mean() > 0.85


def test_the_shipped_config_learns_from_the_run_that_it_names(expert: Path) -> None:
    expert.rename("cartpole_expert")
    config = Path(ding_like.__file__).parents[1] / "dizoo/classic_control/cartpole/config/cartpole_dagger_config.py"

    serial_pipeline(str(config), seed=0, max_env_step=128, exp_name="run", overrides=["env.n_evaluator_episode=10"])

    assert json.loads(Path("run/result.json").read_text())["train_iter"] > 0


def test_a_run_in_two_parts_equals_one_in_one(expert: Path) -> None:
    whole = serial_pipeline(configs(), seed=3, max_env_step=400, exp_name="whole")
    serial_pipeline(configs(), seed=3, max_env_step=203, exp_name="parts")
    resumed = resume_pipeline("parts", max_env_step=400)

    assert resumed is not None
    assert_equal_states(whole.learn_mode.state_dict(), resumed.learn_mode.state_dict())


def test_loading_an_expert_draws_no_random_numbers_of_the_run(expert: Path) -> None:
    fitted = make(model=dict(obs_shape=4, action_shape=2), action_space="discrete").cfg
    torch.manual_seed(5)
    before = torch.random.get_rng_state()

    actor = load_expert("expert", fitted)

    assert torch.equal(before, torch.random.get_rng_state())
    obs = np.zeros((1, 4), np.float32)
    given: dict[str, Any] = dict(lanes=np.arange(1), is_first=np.ones(1, bool), rng=np.random.default_rng(0))
    assert actor.act(obs, **given)["action"] == load_agent(expert).act(obs)


@pytest.mark.slow
def test_collectors_of_a_parallel_run_have_the_expert_too(expert: Path) -> None:
    main, create = configs()
    parallel_pipeline((main, create, dict(num_collectors=1)), seed=0, exp_name="run", max_env_step=300)

    assert json.loads(Path("run/result.json").read_text())["train_iter"] > 0


def test_an_agent_of_a_run_needs_no_expert(expert: Path) -> None:
    serial_pipeline(configs(), seed=0, max_env_step=100)
    expert.rename("elsewhere")

    agent = load_agent("run", which="last")

    assert agent.act(np.zeros(4, np.float32), deterministic=False) in (0, 1)


def test_what_is_no_expert_is_one_error(expert: Path) -> None:
    with pytest.raises(ConfigError, match="collect.model_path.*is not set: give the folder of the expert's run"):
        compile_config(*configs(collect=dict(model_path="")), save=False)
    with pytest.raises(ConfigError, match="model_path is 'nowhere', expected the folder of a run"):
        serial_pipeline(configs(collect=dict(model_path="nowhere")), max_env_step=32)
    main, create = configs()
    main["env"]["env_id"] = "Acrobot-v1"
    with pytest.raises(ConfigError, match="trained with .*CartPole-v1.* and this run has .*Acrobot-v1"):
        serial_pipeline((main, create), max_env_step=32)
    (expert / "ckpt/ckpt_best.pth.tar").write_bytes(b"torn")
    with pytest.raises(CheckpointError, match="model_path 'expert': .*not a file of torch.save"):
        serial_pipeline(configs(), max_env_step=32)


def test_an_expert_that_sees_normalised_observations_is_refused(in_tmp: Path, no_pictures: None) -> None:
    env = dict(ENV, wrappers=[dict(type="obs_norm")])
    create = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="dqn"))
    serial_pipeline((dict(exp_name="expert", env=env, policy={}), create), seed=1, max_env_step=100)
    main, create = configs()
    main["env"] = env

    with pytest.raises(ConfigError, match="model_path 'expert': the expert's env.wrappers have learned statistics"):
        serial_pipeline((main, create), max_env_step=32)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (dict(random_collect_size=10), "random_collect_size.*with beta near 1 it acts first"),
        (dict(other=dict(beta=dict(start=0.1, end=0.5))), "beta.start.*less than beta.end"),
        (dict(other=dict(beta=dict(start=1.5))), "beta.start"),
        (dict(other=dict(beta=dict(type="cosine"))), "beta.type"),
    ],
)
def test_settings_that_cannot_be_are_refused(policy: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compile_config(*configs(**policy), save=False)
