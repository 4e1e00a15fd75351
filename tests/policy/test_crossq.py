"""CrossQ: an update equals one written out, running statistics move by applied updates alone, acting uses them."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from ding_like.errors import ConfigError
from ding_like.model.crossq import BatchRenorm, CrossQ, batch_statistics
from ding_like.policy.sharing import Share
from tests.policy.continuous import GAMMA, double, make_batch, make_policy

THETA = 0.1


def make(**learn):
    policy = make_policy("crossq", learn=dict(statistics_theta=THETA, alpha=0.3, **learn))
    for layers in policy._renorms.values():
        for number, layer in enumerate(layers):
            layer.running += 0.1 * (number + 1)
            layer.weight.data += 0.2
            layer.bias.data -= 0.1
    return policy


def normalised(layer, x, *, by_batch, corrects=False):
    """Return features normalised, written out."""
    mean, variance = layer.running
    if not by_batch:
        return (x - mean) / (variance + layer.eps).sqrt() * layer.weight + layer.bias
    batch_mean = x.sum(dim=0) / len(x)
    batch_variance = (x - batch_mean).square().sum(dim=0) / len(x)
    y = (x - batch_mean) / (batch_variance + layer.eps).sqrt()
    if corrects:
        r = ((batch_variance + layer.eps) / (variance + layer.eps)).sqrt().detach().clamp(1 / 3, 3)
        d = ((batch_mean - mean) / (variance + layer.eps).sqrt()).detach().clamp(-5, 5)
        y = y * r + d
    return y * layer.weight + layer.bias


def passed(layers, x, **how):
    for layer in layers:
        x = normalised(layer, x, **how) if isinstance(layer, BatchRenorm) else layer(x)
    return x


def drawn(actor, obs, noise, **how):
    """Return actions and their log densities."""
    mean, log_sigma = passed(list(actor)[1:], obs, **how).chunk(2, dim=1)
    normal = torch.distributions.Normal(mean, log_sigma.exp())
    raw = mean + log_sigma.exp() * noise
    return raw.tanh(), (normal.log_prob(raw) - torch.log(1 - raw.tanh() ** 2)).sum(dim=1)


def critics(critic, obs, action, **how):
    return torch.stack([passed(network, torch.cat([obs, action], dim=1), **how)[:, 0] for network in critic.q])


@pytest.mark.parametrize("corrects", [False, True])
def test_an_update_equals_one_written_out(corrects: bool) -> None:
    policy, batch = make(actor_update_freq=1, renorm_warmup=0 if corrects else 10), make_batch()
    policy.grad(batch)  # begins the noise
    generator = copy.deepcopy(policy._noise)
    generator.begin()
    next_noise, noise = (generator.normal(16, 2).double() for _ in range(2))
    actor, critic = double(policy._model.actor), double(policy._model.critic)
    rows, how = policy._rows(batch), dict(by_batch=True, corrects=corrects)
    obs, next_obs, action = (each.double() for each in (rows.obs, rows.next_obs, rows.action))
    with torch.no_grad():
        next_action, next_log_prob = drawn(actor, next_obs, next_noise, by_batch=False)
    both = critics(critic, torch.cat([obs, next_obs]), torch.cat([action, next_action]), **how)
    q, next_q = both[:, :16], both[:, 16:].detach()
    y = rows.reward + GAMMA * (next_q.amin(dim=0) - 0.3 * next_log_prob) * ~rows.terminated
    critic_loss = (0.5 * (q - y) ** 2).mean(dim=1).sum()
    drawn_action, log_prob = drawn(actor, obs, noise, **how)
    actor_loss = (0.3 * log_prob - critics(critic, obs, drawn_action, by_batch=False).amin(dim=0)).mean()

    info, _ = policy.grad(batch)

    for name, loss, module in (("critic", critic_loss, critic), ("actor", actor_loss, actor)):
        assert float(info[f"{name}_loss"]) == pytest.approx(float(loss.detach()), rel=1e-5)
        expected = torch.autograd.grad(loss, list(module.parameters()))
        found = policy._networks()[name].params.grad_vector.double()
        torch.testing.assert_close(found, torch.cat([each.flatten() for each in expected]), rtol=1e-3, atol=1e-5)


def test_running_statistics_move_when_an_update_is_applied_and_the_actors_in_its_turn() -> None:
    policy, batch = make(actor_update_freq=2), make_batch()
    before = {name: [layer.running.clone() for layer in layers] for name, layers in policy._renorms.items()}

    def moved(name: str) -> bool:
        return any(not layer.running.equal(old) for layer, old in zip(policy._renorms[name], before[name], strict=True))

    policy.grad(batch)
    assert not moved("critic")
    policy.apply()
    assert moved("critic") and not moved("actor")
    first = policy._renorms["critic"][0]
    rows = policy._rows(batch)
    inputs = torch.cat([torch.cat([rows.obs, rows.next_obs]), torch.zeros(32, 2)], dim=1)[:, :3]
    expected = before["critic"][0][0, :3].lerp(inputs.mean(dim=0), THETA)
    torch.testing.assert_close(first.running[0, :3], expected)
    policy.grad(batch)
    policy.apply()
    assert moved("actor")


def test_a_gradient_applied_in_another_process_moves_the_running_statistics_there() -> None:
    here, there, batch = make(actor_update_freq=1), make(actor_update_freq=1), make_batch()
    here.grad(batch)
    for own, found in zip(there.grad_vectors(), here.grad_vectors(), strict=True):
        own.copy_(found)

    there.apply()
    here.apply()

    for name, layers in here._renorms.items():
        for layer, twin in zip(layers, there._renorms[name], strict=True):
            torch.testing.assert_close(twin.running, layer.running)


def test_several_learners_are_refused() -> None:
    with pytest.raises(ConfigError, match="statistics of whole batches"):
        make().set_share(Share(0, 2))


def test_an_action_does_not_depend_on_the_rows_beside_it() -> None:
    policy = make()
    obs = torch.from_numpy(make_batch()["obs"])

    torch.testing.assert_close(policy._model.actor(obs)[:1], policy._model.actor(obs[:1]))
    with batch_statistics(policy._renorms["actor"], corrects=False):
        beside = policy._model.actor(obs)[:1]
    assert not np.allclose(beside.detach(), policy._model.actor(obs[:1]).detach(), atol=1e-3)


@pytest.mark.parametrize("wrong", [dict(obs_shape=(3, 84, 84)), dict(obs_shape=3, action_space="regression")])
def test_images_and_other_actors_are_refused(wrong: dict) -> None:
    with pytest.raises(ConfigError, match="'crossq' model"):
        CrossQ(action_shape=2, **wrong)
