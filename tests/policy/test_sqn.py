"""Soft Q-network: an update equals a slow walk over rows and actions, actors draw from the softmax of the critics."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ding_like.config import deep_merge, to_plain
from ding_like.model.qac import DiscreteCritics
from ding_like.policy.sqn import SQNPolicy
from tests.policy.continuous import GAMMA, act, double, train
from tests.policy.test_continuous_updates import ACTIONS, DISCRETE_CASES, board_and_legal, discrete_batch

MODEL = dict(obs_shape=3, action_shape=ACTIONS, critic_head_hidden_size=8)
ALPHA = 0.3  # so that the policy is neither uniform nor greedy


def make(*, seed: int = 0, dtype: torch.dtype = torch.float32, **changes: Any) -> SQNPolicy:
    """Return a small policy whose targets differ from its critics."""
    torch.manual_seed(seed)
    cfg = deep_merge(
        to_plain(SQNPolicy.default_config()),
        dict(discount_factor=GAMMA, model=MODEL, learn=dict(target_theta=0.25, alpha=ALPHA)),
    )
    policy = SQNPolicy(deep_merge(cfg, changes), DiscreteCritics(**MODEL, twin_critic=True).to(dtype))  # type: ignore[arg-type]
    target = policy._critic.target_params
    assert target is not None
    target.data_vector.add_(0.3 * torch.randn_like(target.data_vector))
    return policy


def softmax(values: list[float], alpha: float) -> list[float]:
    parts = [math.exp((value - max(values)) / alpha) for value in values]
    return [part / sum(parts) for part in parts]


def slow_losses(policy: SQNPolicy, batch: Any, *, alpha: float, ignore_done: bool) -> tuple[Tensor, float, Any]:
    """Go row by row and action by action; return (critics' loss, temperature's loss, the critic differentiated by)."""
    critic, target_critic = double(policy.get_attribute("model").critic), double(policy._critic.target)
    losses, gaps = [], []
    for row in batch:
        obs, legal = board_and_legal(row, "obs")
        next_obs, next_legal = board_and_legal(row, "next_obs")
        with torch.no_grad():
            pi = softmax([float(critic(next_obs)[:, 0, a].min()) for a in next_legal], alpha)
            worth = [float(target_critic(next_obs)[:, 0, a].min()) for a in next_legal]
            own = softmax([float(critic(obs)[:, 0, a].min()) for a in legal], alpha)
        target = float(row["reward"])
        if ignore_done or not row["terminated"]:
            soft = sum(p * (value - alpha * math.log(p)) for p, value in zip(pi, worth, strict=True))
            target += float(row.get("discount", GAMMA)) * soft
        error = critic(obs)[:, 0, row["action"]] - target
        losses.append(float(row.get("weight", 1.0)) * (0.5 * error**2).sum())
        gaps.append(-sum(p * math.log(p) for p in own) - 0.98 * math.log(len(legal)))
    return torch.stack(losses).mean(), math.log(alpha) * float(np.mean(gaps)), critic


@pytest.mark.parametrize("case", DISCRETE_CASES)
def test_losses_and_gradient_equal_a_slow_walk_over_rows_and_actions(case: str) -> None:
    batch, changes = DISCRETE_CASES[case]
    policy = make(dtype=torch.float64, **changes)
    alpha = float(policy._log_alpha["log_alpha"].detach().exp())
    loss, alpha_loss, critic = slow_losses(policy, batch, alpha=alpha, ignore_done=case == "ignore_done")

    info, priority = policy.grad(batch)

    assert priority is None
    assert float(info["critic_loss"]) == pytest.approx(loss.item(), rel=1e-6)
    assert float(info["total_loss"]) == float(info["critic_loss"])
    assert float(info["alpha_loss"]) == pytest.approx(alpha_loss, rel=1e-5)
    gradient = torch.cat([grad.flatten() for grad in torch.autograd.grad(loss, list(critic.parameters()))])
    torch.testing.assert_close(policy._critic.params.grad_vector, gradient, rtol=1e-5, atol=1e-7)


def test_where_nothing_is_allowed_next_nothing_follows() -> None:
    batch = discrete_batch(is_masked=True, terminated=np.zeros(16, bool))
    nothing = np.zeros_like(batch["next_obs/action_mask"])

    info, _ = make().grad(batch.with_columns(**{"next_obs/action_mask": nothing}))

    assert np.array_equal(info["target_q_value"], batch["reward"])


def test_collecting_draws_from_the_softmax_at_the_present_temperature_and_evaluation_takes_the_best() -> None:
    policy, obs = make(), discrete_batch()["obs"]
    with torch.no_grad():
        policy._critic.params.data_vector.mul_(3)
        policy._log_alpha["log_alpha"].fill_(math.log(0.2))
        values = policy.get_attribute("model").critic(torch.from_numpy(obs)).amin(dim=0)

    drawn = act(policy.collect_mode.actor, np.tile(obs[:1], (20_000, 1)))
    done = act(policy.eval_mode.actor, obs)

    expected = softmax(values[0].tolist(), 0.2)
    np.testing.assert_allclose(np.bincount(drawn, minlength=ACTIONS) / 20_000, expected, atol=0.015)
    assert np.array_equal(done, values.argmax(dim=1).numpy()) and len(np.unique(done)) > 1


def test_a_collector_is_sent_the_temperature_with_the_weights() -> None:
    learner, collector = make(learn=dict(alpha=0.05)), make(seed=1)
    obs = np.tile(discrete_batch()["obs"][:1], (500, 1))
    assert not np.array_equal(act(collector.collect_mode.actor, obs), act(learner.collect_mode.actor, obs))

    collector.collect_mode.load_state_dict(learner.collect_mode.state_dict())

    assert np.array_equal(act(collector.collect_mode.actor, obs), act(learner.collect_mode.actor, obs))


def test_weights_alone_leave_the_temperature_as_the_config_has_it() -> None:
    learner, policy = make(learn=dict(alpha=0.05)), make()

    policy.collect_mode.load_state_dict({"model": learner.get_attribute("model").state_dict()})

    assert float(policy._log_alpha["log_alpha"].detach().exp()) == pytest.approx(ALPHA)


@pytest.mark.parametrize(("target_entropy", "sign"), [(1.09, 1), (0.0, -1)])
def test_alpha_rises_where_the_entropy_is_below_its_target_and_falls_above(target_entropy: float, sign: int) -> None:
    policy = make(learn=dict(target_entropy=target_entropy))

    train(policy, [discrete_batch()])

    assert np.sign(float(policy._log_alpha["log_alpha"].detach()) - math.log(ALPHA)) == sign


def test_learning_ends_at_the_softmax_of_rewards_whose_entropy_is_the_target() -> None:
    policy = make(learn=dict(learning_rate=1e-2, target_entropy=0.6), model=dict(critic_head_hidden_size=16))
    pays = np.float32([0.0, 0.5, 1.0])
    for seed in range(200):
        batch = discrete_batch(64, seed=seed, terminated=np.ones(64, bool))
        train(policy, [batch.with_columns(reward=pays[batch["action"]])])

    info, _ = policy.grad(discrete_batch(256, seed=1000))

    assert float(info["entropy"].mean()) == pytest.approx(0.6, abs=0.05)
    drawn = act(policy.collect_mode.actor, np.tile(discrete_batch(seed=1001)["obs"], (1000, 1)))
    expected = softmax(pays.tolist(), float(info["alpha"]))
    np.testing.assert_allclose(np.bincount(drawn, minlength=ACTIONS) / len(drawn), expected, atol=0.05)
