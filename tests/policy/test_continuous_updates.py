"""DDPG, TD3 and SAC: an update equals a slow walk over rows, targets follow, training finds which way to push."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, TanhTransform, TransformedDistribution

from ding_like.config import to_plain
from ding_like.policy import get_policy_cls
from tests.config.faults import faults
from tests.policy import hybrid, test_discrete_sac, test_pdqn
from tests.policy.continuous import (
    CASES,
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

ALPHA = 0.2


def ddpg_row(x: Any, networks: dict[str, Any], noise: list[Tensor]) -> Any:
    """Return (critics' loss given the target of a next value, next value, actor's loss): Lillicrap et al. 2016."""
    next_value = networks["target_critic"](x.next_obs, networks["target_actor"](x.next_obs)).item()
    q = networks["critic"](x.obs, x.action)
    return lambda target: (q[0] - target) ** 2, next_value, -networks["critic"](x.obs, networks["actor"](x.obs))[0]


def td3_row(x: Any, networks: dict[str, Any], noise: list[Tensor]) -> Any:
    """Go as Fujimoto et al. 2018, algorithm 1."""
    smoothed = networks["target_actor"](x.next_obs) + (0.2 * noise[0]).clamp(-0.2, 0.3)
    next_q = networks["target_critic"](x.next_obs, smoothed.clamp(-1, 1))
    q = networks["critic"](x.obs, x.action)
    actor_loss = -networks["critic"](x.obs, networks["actor"](x.obs))[0]
    return lambda target: (q[0] - target) ** 2 + (q[1] - target) ** 2, next_q.min().item(), actor_loss


def draw(actor: Any, obs: Tensor, epsilon: Tensor) -> tuple[Tensor, Tensor]:
    """Return one action and its log density, through torch's own distributions."""
    mean, log_sigma = actor(obs).chunk(2, dim=1)
    gaussian = Normal(mean, log_sigma.clamp(-20, 2).exp())
    squashed = TransformedDistribution(gaussian, TanhTransform(cache_size=1))
    action = squashed.transforms[0](mean + gaussian.scale * epsilon)
    return action, squashed.log_prob(action).sum()


def sac_row(x: Any, networks: dict[str, Any], noise: list[Tensor]) -> Any:
    """Go as Haarnoja et al. 2018b, algorithm 1."""
    next_action, next_log_prob = draw(networks["actor"], x.next_obs, noise[0])
    next_value = networks["target_critic"](x.next_obs, next_action).min() - ALPHA * next_log_prob
    q = networks["critic"](x.obs, x.action)
    action, log_prob = draw(networks["actor"], x.obs, noise[1])
    actor_loss = ALPHA * log_prob - networks["critic"](x.obs, action).min()
    return lambda target: 0.5 * ((q[0] - target) ** 2 + (q[1] - target) ** 2), next_value.item(), actor_loss


@dataclass
class Algorithm:
    """One algorithm: its slow loss of a row, how many rows of noise it draws for each row, settings."""

    row: Callable[..., Any]
    draws: int = 0
    learn: dict[str, Any] | None = None


# Every update is one of TD3's actor, and a narrow range cuts much of the noise.
ALGORITHMS = {
    "ddpg": Algorithm(ddpg_row),
    "td3": Algorithm(td3_row, 1, dict(actor_update_freq=1, noise_range=dict(min=-0.2, max=0.3))),
    "sac": Algorithm(sac_row, 2),
}


def make(name: str, **changes: Any) -> Any:
    learn = {**(ALGORITHMS[name].learn or {}), **changes.pop("learn", {})}
    return make_policy(name, learn=learn, **changes)


def slow_losses(name: str, policy: Any, batch: Any, *, ignore_done: bool = False) -> tuple[dict[str, Tensor], Any]:
    """Go row by row in float64; return the losses and the networks that they may be differentiated by."""
    modules = {
        "actor": policy.get_attribute("model").actor,
        "critic": policy.get_attribute("model").critic,
        "target_critic": policy._critic.target,
    }
    if policy._actor.target is not None:
        modules["target_actor"] = policy._actor.target
    networks = {key: double(module) for key, module in modules.items()}
    draws = ALGORITHMS[name].draws
    noise = peek_noise(policy, draws * len(batch), 2).split(len(batch)) if draws else []
    critic_losses, actor_losses = [], []
    for number, row in enumerate(batch):
        own_noise = [each[number] for each in noise]
        of_critics, next_value, of_actor = ALGORITHMS[name].row(tensors(row), networks, own_noise)
        target = td_target(row, next_value, ignore_done=ignore_done)
        critic_losses.append(float(row.get("weight", 1.0)) * of_critics(target).sum())
        actor_losses.append(of_actor.sum())
    return {"critic": torch.stack(critic_losses).mean(), "actor": torch.stack(actor_losses).mean()}, networks


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_update_equals_a_slow_walk_over_rows(name: str, case: str) -> None:
    columns, changes = CASES[case]
    policy, batch = make(name, **changes), make_batch(**columns)
    losses, networks = slow_losses(name, policy, batch, ignore_done=case == "ignore_done")

    info, priority = policy.grad(batch)

    assert priority is None
    for network, loss in losses.items():
        assert float(info[f"{network}_loss"]) == pytest.approx(float(loss.detach()), rel=1e-6, abs=1e-6)
        gradient = torch.autograd.grad(loss, list(networks[network].parameters()), retain_graph=True)
        found = policy._networks()[network].params.grad_vector.double()
        torch.testing.assert_close(found, torch.cat([grad.flatten() for grad in gradient]), rtol=1e-4, atol=1e-6)
    if name == "sac":
        # Two action dimensions: the entropy aims at -2.
        expected = math.log(ALPHA) * (float(info["entropy"].mean()) + 2)
        assert float(info["alpha_loss"]) == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_without_noise_the_target_is_that_of_the_target_actor() -> None:
    policy, batch = make("td3", learn=dict(noise=False)), make_batch()

    info, _ = policy.grad(batch)

    rows = policy._rows(batch)
    with torch.no_grad():
        next_q = policy._critic.target(rows.next_obs, policy._actor.target(rows.next_obs)).amin(dim=0)
    expected = rows.reward + 0.9 * next_q * ~rows.terminated
    torch.testing.assert_close(info["target_q_value"].expand_as(expected), expected)


@pytest.mark.parametrize("name", [*ALGORITHMS, "discrete_sac", "pdqn"])
def test_targets_follow_the_stepped_networks_by_momentum(name: str) -> None:
    policy, batch = policy_and_batch(name)
    before = {key: network.target_params.data_vector.clone() for key, network in targets_of(policy).items()}

    train(policy, [batch])

    assert set(before) == ({"critic"} if "sac" in name else {"critic", "actor"})
    for key, network in targets_of(policy).items():
        expected = before[key].lerp(network.params.data_vector, 0.25)
        torch.testing.assert_close(network.target_params.data_vector, expected)


def policy_and_batch(name: str, **changes: Any) -> tuple[Any, Any]:
    if name == "discrete_sac":
        return test_discrete_sac.make_policy(**changes), test_discrete_sac.make_batch()
    if name == "pdqn":
        return test_pdqn.make_policy(**changes), hybrid.make_batch()
    return make(name, **changes), make_batch()


def targets_of(policy: Any) -> dict[str, Any]:
    return {key: network for key, network in policy._networks().items() if network.target is not None}


@pytest.mark.parametrize("name", [*ALGORITHMS, "discrete_sac"])
def test_priorities_are_mean_absolute_td_errors_of_the_critics(name: str) -> None:
    policy, batch = policy_and_batch(name, priority=True)

    info, priority = policy.grad(batch)

    error = (info["q_value"] - info["target_q_value"]).abs()
    expected = error if error.ndim == 1 else error.mean(dim=0)
    np.testing.assert_allclose(priority, expected.numpy(), rtol=1e-6)


@pytest.mark.parametrize("name", ["td3", "sac"])
def test_a_state_in_the_middle_of_a_cycle_goes_on_bit_equal_and_torchs_generator_is_left_alone(name: str) -> None:
    before = torch.get_rng_state()
    first, second = make_policy(name), make_policy(name)
    torch.set_rng_state(before)
    # 3 updates: the next one is that of TD3's actor. The noise goes on from where it was as well.
    train(first, [make_batch(seed=seed) for seed in range(3)])
    second.learn_mode.load_state_dict(copy.deepcopy(first.learn_mode.state_dict()))

    for policy in (first, second):
        train(policy, [make_batch(seed=seed) for seed in range(3, 8)])

    assert all(torch.equal(mine, theirs) for mine, theirs in zip(flat_state(first), flat_state(second), strict=True))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_learning_finds_which_way_to_push(name: str) -> None:
    assert push_the_right_way(name, learning_rate=1e-2, **(dict(actor_update_freq=1) if name == "td3" else {})) > 0.8


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("ddpg", "target_theta", 1.5),
        ("td3", "actor_update_freq", 0),
        ("td3", "noise_range", dict(min=0.5, max=-0.5)),
        ("sac", "alpha", 0.0),
    ],
)
def test_settings_that_make_no_sense_are_contradictions(name: str, key: str, value: Any) -> None:
    cls = get_policy_cls({"type": name})
    cfg = to_plain(cls.default_config())
    cfg["learn"][key] = value

    assert [path for path, _ in faults(cls, cfg)] == [f"learn.{key}"]
