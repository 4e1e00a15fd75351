import copy
import math

import numpy as np
import pytest
import torch
from torch.distributions import Normal, TanhTransform, TransformedDistribution

from ding_like.config import to_plain
from ding_like.policy.sac import SACPolicy
from tests.config.faults import faults
from tests.policy.continuous import (
    CASES,
    CENTRE,
    HALF,
    HIGH,
    LOW,
    act,
    double,
    flat_state,
    make_batch,
    make_policy,
    peek_noise,
    push_the_right_way,
    td_target,
    tensors,
    train,
)


def draw(actor, obs, epsilon) -> tuple[torch.Tensor, float]:
    """Return one action and its log density, through torch's own distributions."""
    mean, log_sigma = actor(obs).chunk(2, dim=1)
    gaussian = Normal(mean, log_sigma.clamp(-20, 2).exp())
    squashed = TransformedDistribution(gaussian, TanhTransform(cache_size=1))
    action = squashed.transforms[0](mean + gaussian.scale * epsilon)
    return action, squashed.log_prob(action).sum().item()


@torch.no_grad()
def slow_losses(policy, batch, noise, *, alpha: float, ignore_done=False) -> dict[str, float]:
    """Go row by row, as the papers say (Haarnoja et al. 2018b, algorithm 1)."""
    actor, critic = double(policy._model.actor), double(policy._model.critic)
    target_critic = double(policy._critic.target)
    critic_losses, actor_losses, log_probs = [], [], []
    for row, next_epsilon, epsilon in zip(batch, *noise, strict=True):
        x = tensors(row)
        next_action, next_log_prob = draw(actor, x.next_obs, next_epsilon)
        next_value = target_critic(x.next_obs, next_action).min().item() - alpha * next_log_prob
        target = td_target(row, next_value, ignore_done=ignore_done)
        loss = sum(0.5 * (q.item() - target) ** 2 for q in critic(x.obs, x.action))
        critic_losses.append(float(row.get("weight", 1.0)) * loss)
        action, log_prob = draw(actor, x.obs, epsilon)
        actor_losses.append(alpha * log_prob - critic(x.obs, action).min().item())
        log_probs.append(log_prob)
    return {
        "critic_loss": np.mean(critic_losses),
        "actor_loss": np.mean(actor_losses),
        # Two action dimensions: the entropy aims at -2.
        "alpha_loss": -math.log(alpha) * (np.mean(log_probs) - 2),
    }


@pytest.mark.parametrize("case", CASES)
def test_losses_equal_a_slow_walk_over_rows(case):
    columns, changes = CASES[case]
    policy, batch = make_policy("sac", **changes), make_batch(**columns)
    noise = peek_noise(policy, 32, 2).split(16)

    info, priority = policy.grad(batch)

    expected = slow_losses(policy, batch, noise, alpha=0.2, ignore_done=case == "ignore_done")
    for name, value in expected.items():
        assert float(info[name]) == pytest.approx(value, rel=1e-6, abs=1e-6)
    assert priority is None


def test_gradients_equal_plain_autograd():
    policy, batch = make_policy("sac"), make_batch()
    actor, critic = copy.deepcopy(policy._model.actor), copy.deepcopy(policy._model.critic)
    noise = peek_noise(policy, 32, 2).float().split(16)

    info, _ = policy.grad(batch)

    rows = policy._rows(batch)
    critic_loss = 0.5 * (critic(rows.obs, rows.action) - info["target_q_value"]).square().mean(dim=1).sum()
    mean, log_sigma = actor(rows.obs).chunk(2, dim=1)
    squashed = TransformedDistribution(Normal(mean, log_sigma.exp()), TanhTransform(cache_size=1))
    action = squashed.transforms[0](mean + log_sigma.exp() * noise[1])
    actor_loss = (0.2 * squashed.log_prob(action).sum(1) - critic(rows.obs, action).amin(dim=0)).mean()
    for network, loss, module in ((policy._critic, critic_loss, critic), (policy._actor, actor_loss, actor)):
        grads = torch.autograd.grad(loss, list(module.parameters()), retain_graph=True)
        torch.testing.assert_close(network.params.grad_vector, torch.cat([grad.flatten() for grad in grads]))


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


def test_only_the_critics_have_targets_and_these_follow_by_momentum():
    policy = make_policy("sac")
    before = policy._critic.target_params.data_vector.clone()

    train(policy, [make_batch()])

    expected = before.lerp(policy._critic.params.data_vector, 0.25)
    torch.testing.assert_close(policy._critic.target_params.data_vector, expected)
    assert policy._actor.target is None


def test_collecting_draws_from_the_squashed_gaussian():
    policy = make_policy("sac")
    obs = make_batch()["obs"][:1]
    with torch.no_grad():
        mean, log_sigma = policy._model.actor(torch.from_numpy(obs)).numpy()[0].reshape(2, 2)

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
        mean = policy._model.actor(torch.from_numpy(obs)).numpy()[:, :2]

    np.testing.assert_allclose(act(policy.eval_mode.actor, obs), CENTRE + HALF * np.tanh(mean), rtol=1e-5, atol=1e-6)


def test_priorities_are_mean_absolute_td_errors_of_the_two_critics():
    info, priority = make_policy("sac", priority=True).grad(make_batch())

    expected = (info["q_value"] - info["target_q_value"]).abs().mean(dim=0)
    np.testing.assert_allclose(priority, expected.numpy(), rtol=1e-6)


def test_state_round_trip_continues_bit_equal():
    first = make_policy("sac")
    train(first, [make_batch(seed=seed) for seed in range(3)])
    second = make_policy("sac")
    second.learn_mode.load_state_dict(copy.deepcopy(first.learn_mode.state_dict()))

    for policy in (first, second):
        train(policy, [make_batch(seed=seed) for seed in range(3, 6)])

    assert all(torch.equal(mine, theirs) for mine, theirs in zip(flat_state(first), flat_state(second), strict=True))


def test_training_leaves_torchs_global_generator_alone():
    policy = make_policy("sac")
    before = torch.get_rng_state()

    train(policy, [make_batch()])

    assert torch.equal(torch.get_rng_state(), before)


def test_learning_finds_which_way_to_push():
    assert push_the_right_way("sac", learning_rate=1e-2) > 0.8


def test_a_temperature_that_is_not_positive_is_a_contradiction():
    cfg = to_plain(SACPolicy.default_config())
    cfg["learn"]["alpha"] = 0.0

    assert [path for path, _ in faults(SACPolicy, cfg)] == ["learn.alpha"]
