"""A2C: the loss, its one minibatch. Rows and acting are PPO's, see test_ppo."""

import numpy as np
import pytest
import torch

from ding_like.policy.a2c import A2CPolicy
from ding_like.policy.ppo import PPOOffPolicy
from tests.policy.on_policy import KINDS, make_batch, make_policy, play_bandit, train


@torch.no_grad()
def slow_loss(policy, batch):
    """Go row by row, as the paper says."""
    learn, advantage = policy._cfg.learn, batch["advantage"].astype(float)
    if learn.adv_norm:
        advantage = (advantage - advantage.mean()) / advantage.std()
    terms = []
    for i, row in enumerate(batch):
        output, value = policy.get_attribute("model").actor_critic(torch.tensor(row["obs"][None]))
        action = torch.tensor(row[policy._family.column])[None]
        log_prob, entropy = (float(x) for x in policy._family.log_prob_and_entropy(output, action))
        error = (float(value) - float(row["return_"])) ** 2
        terms.append(-log_prob * advantage[i] + learn.value_weight * error - learn.entropy_weight * entropy)
    return np.mean(terms)


@pytest.mark.parametrize(
    ("kind", "learn"), [("one", {}), ("clipped", dict(adv_norm=True, entropy_weight=0.1, value_weight=0.25))]
)
def test_loss_equals_a_slow_walk_over_rows(kind, learn):
    policy = make_policy(A2CPolicy, learn=learn, **KINDS[kind])
    batch = make_batch(policy)

    info, priority = policy.grad(batch)

    assert float(info["total_loss"]) == pytest.approx(slow_loss(policy, batch), rel=1e-5, abs=1e-6)
    assert priority is None


@pytest.mark.parametrize("cls", [A2CPolicy, PPOOffPolicy])
def test_all_rows_are_one_minibatch(cls):
    policy = make_policy(cls)
    batch = make_batch(policy)

    assert [part is batch for part in policy.minibatches(batch, np.random.default_rng(0))] == [True]


def test_learning_rate_follows_the_rows_trained_on():
    policy = make_policy(A2CPolicy, learn=dict(learning_rate=1e-3, schedule=dict(env_steps=48, lr_end=1e-4)))

    rates = [train(policy, make_batch(policy))[0]["cur_lr"] for _ in range(4)]

    assert rates == pytest.approx([1e-3, 5.5e-4, 1e-4, 1e-4])


def test_it_learns_a_bandit():
    rewards = play_bandit(make_policy(A2CPolicy, learn=dict(learning_rate=0.02, adv_norm=True, entropy_weight=0.0)), 60)

    assert rewards[-1] > 0.6 * rewards[0]
