import math

import numpy as np
import pytest
import torch

from tests.policy.continuous import (
    CENTRE,
    HALF,
    HIGH,
    LOW,
    act,
    make_batch,
    make_policy,
    train,
)


@pytest.mark.parametrize(("log_space", "slope"), [(True, 1.0), (False, 0.2)])
def test_temperature_follows_the_gap_to_the_target_entropy(log_space, slope):
    policy = make_policy("sac", learn=dict(log_space=log_space, target_entropy=-3.0))

    info, _ = policy.grad(make_batch())

    # d/d log(alpha) of -log(alpha) * (log_prob + target), or of -alpha * (log_prob + target).
    expected = slope * (float(info["entropy"].mean()) + 3.0)
    assert float(policy._temperature.params.grad_vector) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("target", "rises"), [(5.0, True), (-50.0, False)])
def test_alpha_rises_where_the_entropy_is_below_its_target(target, rises):
    policy = make_policy("sac", learn=dict(target_entropy=target))

    train(policy, [make_batch()])

    assert (policy._temperature.network.log_alpha.item() > math.log(0.2)) == rises


def test_a_fixed_temperature_stays():
    policy = make_policy("sac", learn=dict(auto_alpha=False, alpha=0.5))

    info, _ = policy.grad(make_batch())
    policy.apply()

    assert policy._temperature.network.log_alpha.item() == pytest.approx(math.log(0.5))
    assert "alpha_loss" not in info and float(info["alpha"]) == pytest.approx(0.5)


def test_collecting_draws_from_the_squashed_gaussian():
    policy = make_policy("sac")
    obs = make_batch()["obs"][:1]
    with torch.no_grad():
        mean, log_sigma = policy.get_attribute("model").actor(torch.from_numpy(obs)).numpy()[0].reshape(2, 2)

    action = act(policy.collect_mode.actor, np.tile(obs, (20_000, 1)))

    assert (action >= LOW).all() and (action <= HIGH).all()
    u = np.arctanh(((action - CENTRE) / HALF).clip(-1 + 1e-7, 1 - 1e-7))
    np.testing.assert_allclose(u.mean(axis=0), mean, atol=0.03)
    np.testing.assert_allclose(u.std(axis=0), np.exp(log_sigma), rtol=0.03)


def test_evaluation_does_the_mean_and_sees_each_update():
    policy = make_policy("sac", learn=dict(learning_rate=0.1))
    train(policy, [make_batch(seed=seed) for seed in range(3)])
    obs = make_batch()["obs"]

    with torch.no_grad():
        mean = policy.get_attribute("model").actor(torch.from_numpy(obs)).numpy()[:, :2]

    np.testing.assert_allclose(act(policy.eval_mode.actor, obs), CENTRE + HALF * np.tanh(mean), rtol=1e-5, atol=1e-6)
