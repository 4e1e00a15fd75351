"""SQIL: rewards are 1 for the expert and 0 for the agent, and the rest is soft Q-learning, DQN or SAC."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ding_like.config import compile_config, deep_merge, to_plain
from ding_like.data.batch import TransitionBatch
from ding_like.data.demonstrations import Demonstrations
from ding_like.entry import serial_pipeline
from ding_like.errors import ConfigError, SchemaError
from ding_like.policy import create_policy, get_policy_cls
from tests import experts
from tests.policy.values import make_policy, make_rows

GAMMA, ALPHA = 0.9, 0.3


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return experts.cartpole(tmp_path_factory.mktemp("expert") / "expert.safetensors", episodes=2)


def make(file: Path, name: str = "sqil", **changes: Any) -> Any:
    """Return a small policy of CartPole."""
    own = dict(discount_factor=GAMMA, model=dict(obs_shape=4, action_shape=2), collect=dict(data_path=str(file)))
    return make_policy(name, **deep_merge(own, changes))


def joined_by(policy: Any, number: int = 16) -> TransitionBatch:
    """Return a batch as a learner prepares it: the agent's rows, whose env has paid them, and the expert's."""
    batch: TransitionBatch = policy.expert_rows(np.random.default_rng(0)).join(make_rows(number, obs=4, actions=2))
    return batch


@pytest.mark.parametrize("name", ["sqil", "sqil_dqn"])
def test_half_of_a_batch_is_the_experts_and_alone_rewarded(file: Path, name: str) -> None:
    batch = joined_by(make(file, name))

    assert batch["is_expert"].tolist() == [False] * 16 + [True] * 16
    assert batch["reward"].tolist() == [0.0] * 16 + [1.0] * 16


def test_rewards_of_several_steps_are_summed(file: Path) -> None:
    batch = joined_by(make(file, nstep=3), 2000)

    assert not batch["reward"][:2000].any()
    sums = {round(sum(GAMMA**i for i in range(n)), 4) for n in (1, 2, 3)}  # of the last steps of an episode, fewer
    assert {round(float(each), 4) for each in batch["reward"][2000:]} == sums


def slow_loss(policy: Any, batch: TransitionBatch) -> Tensor:
    """Go row by row and action by action: equation 1 of the paper, with half of the rows the agent's."""
    online, target, losses = policy.get_attribute("model"), policy._target_model, []
    for number in range(len(batch)):
        row = {name: column[number] for name, column in batch.columns.items()}
        aim = 1.0 if row["is_expert"] else 0.0
        if not row["terminated"]:
            with torch.no_grad():
                values = target.q(torch.as_tensor(row["next_obs"])[None])[0].double().tolist()
            soft = ALPHA * math.log(sum(math.exp(value / ALPHA) for value in values))
            aim += float(row["discount"] if number < 16 else GAMMA) * soft
        value = online.q(torch.as_tensor(row["obs"])[None])[0, int(row["action"])]
        losses.append((value - aim) ** 2)
    return torch.stack(losses).mean()


@pytest.mark.parametrize("backend", ["auto", "autograd"])
def test_the_loss_equals_a_walk_over_rows_and_actions(file: Path, backend: str) -> None:
    policy = make(file, learn=dict(alpha=ALPHA, backend=backend))
    policy._target_params.data_vector.add_(0.3 * torch.randn_like(policy._target_params.data_vector))
    batch = joined_by(policy)
    # One-step rows of the expert's have no column `discount`; those of the agent here are of several lengths.
    batch = batch.with_columns(discount=np.where(batch["is_expert"], np.float32(GAMMA), batch["discount"]))

    info, _ = policy.learn_mode.grad(batch)
    found = policy._params.grad_vector.clone()
    loss = slow_loss(policy, batch)
    wanted = torch.autograd.grad(loss, list(policy.get_attribute("model").parameters()))

    assert float(info["total_loss"]) == pytest.approx(loss.item(), rel=1e-5)
    assert torch.allclose(found, torch.cat([each.flatten() for each in wanted]), atol=1e-5)


def test_over_sac_an_update_is_that_of_sac_with_these_rewards(tmp_path: Path) -> None:
    file = experts.pendulum(tmp_path / "expert.safetensors", episodes=1)
    own = dict(model=dict(obs_shape=3, action_shape=1), action_space="continuous", action_low=[-2.0], action_high=[2.0])
    found = []
    for name in ("sqil_sac", "sac"):
        defaults = to_plain(get_policy_cls({"type": name}).default_config())
        torch.manual_seed(0)
        policy: Any = create_policy(deep_merge(defaults, {**own, "type": name}))
        if name == "sqil_sac":
            policy.cfg.collect.data_path = str(file)
            agents = make_rows(8, action=np.random.default_rng(0).uniform(-2, 2, (8, 1)).astype(np.float32))
            batch = policy.expert_rows(np.random.default_rng(0)).join(agents)
        else:
            batch = batch.with_columns(reward=batch["is_expert"].astype(np.float32))
        torch.manual_seed(1)
        policy.learn_mode.grad(batch)
        policy.learn_mode.apply()
        found.append(policy._critic.params.data_vector.clone())

    assert batch["action"].shape == (16, 1) and torch.equal(*found)


# ---- what is refused


def compiled(**collect: Any) -> Any:
    main = dict(env=dict(env_id="CartPole-v1"), policy=dict(collect=collect))
    create = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="sqil"))
    return compile_config(main, create, save=False)


def test_a_config_without_a_file_is_refused_with_the_command_that_writes_one() -> None:
    with pytest.raises(ConfigError, match="policy.collect.data_path.*is not set.*`ding collect`"):
        compiled()

    assert compiled(data_path="some.safetensors").policy.collect.data_path == "some.safetensors"


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no file of demonstrations 'absent.safetensors'.*`ding collect`"):
        make(Path("absent.safetensors")).expert_rows(np.random.default_rng(0))


def test_demonstrations_of_another_env_are_refused(file: Path, tmp_path: Path) -> None:
    rng, two_of_three = np.random.default_rng(0), Demonstrations.load(file)
    pendulum = experts.pendulum(tmp_path / "pendulum.safetensors", episodes=1)
    Demonstrations({**two_of_three.columns, "action": two_of_three.columns["action"] + 1}).save(tmp_path / "third")

    with pytest.raises(ConfigError, match=r"pendulum.safetensors does not fit this env, whose observations are others"):
        make(pendulum).expert_rows(rng)
    with pytest.raises(SchemaError, match=r"third has the action 2 in row \d+, and the env takes one of 2 choices"):
        make(tmp_path / "third").expert_rows(rng)


def test_a_reward_model_is_refused_beside_it(file: Path) -> None:
    assert "1 for the expert" in make(file).why_no_reward_model()


@pytest.mark.usefixtures("in_tmp", "no_pictures")
@pytest.mark.parametrize("name", ["sqil", "sqil_dqn"])
def test_a_run_imitates_without_rewards_of_the_env(file: Path, name: str) -> None:
    main = dict(
        exp_name="run",
        env=dict(env_id="CartPole-v1", collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2, stop_value=1e9),
        policy=dict(
            model=dict(encoder_hidden_size_list=[32]),
            learn=dict(batch_size=32, learning_rate=2e-3, pretrain_updates=300),
            collect=dict(data_path=str(file)),
        ),
    )
    create = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type=name))

    policy: Any = serial_pipeline((main, create), seed=0, max_env_step=400)

    expert = Demonstrations.load(file).batch().columns
    with torch.no_grad():
        chosen = policy.get_attribute("model").q(torch.from_numpy(expert["obs"])).argmax(dim=1).numpy()
    assert (chosen == expert["action"]).mean() > 0.65  # 0.5 by luck
