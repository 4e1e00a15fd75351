"""CQL: its losses and gradients equal a slow walk over rows and actions, through torch's own distributions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, TanhTransform, TransformedDistribution

from ding_like.config import deep_merge
from ding_like.data.batch import TransitionBatch
from tests.policy.continuous import CASES, double, make_batch, make_policy, td_target, tensors, train
from tests.policy.values import ACTIONS, make_rows
from tests.policy.values import make_policy as make_discrete

ALPHA, NUM, SIZE = 0.2, 3, 2  # temperature, actions of each kind, dimensions of one


def drawn_of(policy: Any, batch: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return what the policy draws next: normal for a', uniform [B, n, A], normal at obs and at next_obs."""
    generator = torch.Generator()
    generator.set_state(policy._noise.state)
    shape = (batch, NUM * SIZE)
    target = torch.randn((batch, SIZE), generator=generator)
    uniform = torch.rand(shape, generator=generator) * 2 - 1
    at_obs, at_next = torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)
    return (target.double(), *(each.view(batch, NUM, SIZE).double() for each in (uniform, at_obs, at_next)))


def act(actor: Any, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return an action [A] of the actor, and its log density."""
    mean, log_sigma = (each.detach() for each in actor(obs)[0].chunk(2))
    gaussian = Normal(mean, log_sigma.clamp(-20, 2).exp())
    squashed = TransformedDistribution(gaussian, TanhTransform(cache_size=1))
    action = squashed.transforms[0](mean + gaussian.scale * noise)
    return action, squashed.log_prob(action).sum()


def slow_critics(policy: Any, batch: TransitionBatch, *, ignore_done: bool) -> tuple[Tensor, Tensor, Any]:
    """Go row by row and action by action in float64; return (loss, gaps [N, B], the critics)."""
    learn, model = policy.cfg.learn, policy.get_attribute("model")
    actor, critic, target_critic = (double(each) for each in (model.actor, model.critic, policy._critic.target))
    noise, losses, gaps = drawn_of(policy, len(batch)), [], []
    for number, row in enumerate(batch):
        x, weight = tensors(row), float(row.get("weight", 1.0))
        next_action, next_log_prob = act(actor, x.next_obs, noise[0][number])
        next_value = target_critic(x.next_obs, next_action[None]).min().item()
        next_value -= ALPHA * float(next_log_prob) if learn.with_q_entropy else 0.0
        y = td_target(row, next_value, ignore_done=ignore_done)
        others = [(action, torch.tensor(-SIZE * math.log(2.0))) for action in noise[1][number]]
        others += [act(actor, x.obs, each) for each in noise[2][number]]
        others += [act(actor, x.next_obs, each) for each in noise[3][number]]
        for critic_number in range(2):
            q = critic(x.obs, x.action)[critic_number, 0]
            values = [critic(x.obs, action[None])[critic_number, 0] for action, _ in others]
            if learn.min_q_version == 3:
                weighed = [value.exp() / p.exp() for value, (_, p) in zip(values, others, strict=True)]
                soft = (sum(weighed) / len(weighed)).log()
            else:
                soft = sum(value.exp() for value in [*values, q]).log()
            gap = learn.min_q_weight * (soft - q)
            gaps.append(gap.detach())
            losses.append(weight * ((q - y) ** 2 / 2 + (gap - learn.lagrange_thresh if learn.with_lagrange else gap)))
    return torch.stack(losses).sum() / len(batch), torch.stack(gaps).view(-1, 2).T, critic


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "entropy": dict(with_q_entropy=True, min_q_weight=3.0),
    "version 2": dict(min_q_version=2),
    "lagrange": dict(with_lagrange=True, lagrange_thresh=0.3, min_q_weight=2.0),
}


@pytest.mark.parametrize("backend", ["auto", "autograd"])
@pytest.mark.parametrize(
    ("case", "variant"), [*((case, "plain") for case in CASES), *(("weights", v) for v in VARIANTS)]
)
def test_the_critics_learn_as_a_slow_walk_over_rows_and_actions(case: str, variant: str, backend: str) -> None:
    columns, changes = CASES[case]
    learn = dict(backend=backend, num_actions=NUM, **VARIANTS[variant])
    policy, batch = make_policy("cql", **deep_merge(changes, dict(learn=learn))), make_batch(**columns)
    assert (policy._by_hand is not None) == (backend == "auto")
    loss, gaps, critic = slow_critics(policy, batch, ignore_done=case == "ignore_done")

    info, _ = policy.grad(batch)

    assert float(info["critic_loss"]) == pytest.approx(float(loss.detach()), rel=1e-5)
    torch.testing.assert_close(info["conservative_gap"].double(), gaps, rtol=1e-4, atol=1e-5)
    gradient = torch.autograd.grad(loss, list(critic.parameters()))
    found = policy._critic.params.grad_vector.double()
    torch.testing.assert_close(found, torch.cat([each.flatten() for each in gradient]), rtol=1e-4, atol=1e-5)


def test_the_multiplier_follows_the_gap_and_scales_it() -> None:
    for threshold, rises in ((-100.0, True), (100.0, False)):
        policy = make_policy("cql", learn=dict(with_lagrange=True, lagrange_thresh=threshold))
        batch = make_batch()
        info, _ = policy.grad(batch)
        slope = policy._multiplier.params.grad_vector
        torch.testing.assert_close(slope, -(info["conservative_gap"].mean() - threshold)[None], rtol=1e-5, atol=1e-5)
        for _ in range(5):
            train(policy, [batch])
        assert (float(policy.grad(batch)[0]["multiplier"]) > 1.0) == rises


def test_the_gap_of_the_integral_does_not_depend_on_how_many_actions_are_drawn() -> None:
    few, many = (make_policy("cql", learn=dict(num_actions=number)) for number in (40, 400))
    batch = make_batch(256)

    gaps = [float(policy.grad(batch)[0]["conservative_gap"].mean()) for policy in (few, many)]

    assert gaps[0] == pytest.approx(gaps[1], abs=0.02)


# ---- discrete actions


def slow_gap(policy: Any, row: Any) -> Tensor:
    """Return the gap of one row, by its legal actions."""
    obs, legal = row["obs"], list(range(ACTIONS))
    if isinstance(obs, dict):
        obs, legal = obs["board"], np.flatnonzero(obs["action_mask"]).tolist()
    values = policy.get_attribute("model").quantiles(torch.tensor(obs)[None])[0].mean(dim=1)
    return sum(values[a].exp() for a in legal).log() - values[int(row["action"])]  # type: ignore[return-value]


@pytest.mark.parametrize("masked", [False, True])
def test_discrete_values_learn_from_qrdqns_loss_and_the_gap(masked: bool) -> None:
    policy, plain = (make_discrete(name, priority_IS_weight=True, priority=True) for name in ("discrete_cql", "qrdqn"))
    batch = make_rows()
    if masked:
        legal = np.random.default_rng(2).random((2, len(batch), ACTIONS)) < 0.6
        legal[0, np.arange(len(batch)), batch["action"]] = legal[1, :, 0] = True
        named = dict(batch.columns)
        for name, mask in zip(("obs", "next_obs"), legal, strict=True):
            named |= {f"{name}/board": named.pop(name), f"{name}/action_mask": mask}
        batch = TransitionBatch(named)
    gap = torch.stack([float(row["weight"]) * slow_gap(policy, row) for row in batch]).mean()
    params = policy._params.parameters()
    by_gap = torch.cat([each.flatten() for each in torch.autograd.grad(gap, params)])

    info, priority = policy.grad(batch)
    usual, usual_priority = plain.grad(batch)

    assert float(info["total_loss"]) == pytest.approx(float(usual["total_loss"]) + float(gap.detach()), rel=1e-5)
    torch.testing.assert_close(policy._params.grad_vector, plain._params.grad_vector + by_gap, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(priority, usual_priority, rtol=1e-5)
