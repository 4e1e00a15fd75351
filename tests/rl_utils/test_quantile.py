"""Quantiles at drawn and proposed fractions, against slow versions."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ding_like.errors import ConfigError, SchemaError
from ding_like.model.q_networks import FractionProposal
from ding_like.rl_utils.value_family import (
    ImplicitQuantiles,
    ProposedQuantiles,
    Quantiles,
    fraction_gradient,
    fraction_loss,
    quantile_huber_by_hand,
    quantile_huber_loss,
)

ROWS, ACTIONS, N, M = 7, 3, 5, 4


def draw(seed: int = 0, *, weighted: bool = False) -> tuple[Quantiles, Quantiles]:
    """Return float64 quantiles of chosen actions [B, N], and of targets [B, M]."""
    rng = np.random.default_rng(seed)
    made = []
    for number in (N, M):
        weights = rng.dirichlet(np.ones(number), ROWS) if weighted else np.full((1, number), 1.0 / number)
        made.append(
            Quantiles(
                *map(torch.from_numpy, (2.0 * rng.normal(size=(ROWS, number)), rng.random((ROWS, number)), weights))
            )
        )
    return made[0], made[1]


def slow_implicit_loss(chosen: Quantiles, target: Quantiles, kappa: float) -> list[float]:
    """Compare each predicted quantile with each target, number by number."""
    losses = []
    for row in range(ROWS):
        total = 0.0
        for value, tau in zip(chosen.values[row].tolist(), chosen.fractions[row].tolist(), strict=True):
            weights = target.weights.expand(ROWS, -1)[row].tolist()
            for goal, weight in zip(target.values[row].tolist(), weights, strict=True):
                error = goal - value
                huber = 0.5 * error**2 if abs(error) <= kappa else kappa * (abs(error) - 0.5 * kappa)
                total += weight * abs(tau - (1.0 if error < 0 else 0.0)) * huber / kappa
        losses.append(total)
    return losses


@pytest.mark.parametrize(("kappa", "weighted"), [(0.3, True), (1.0, False), (10.0, True)])
def test_the_loss_equals_a_slow_walk_over_pairs(kappa: float, weighted: bool) -> None:
    chosen, target = draw(weighted=weighted)

    each = quantile_huber_loss(chosen, target, kappa=kappa)

    np.testing.assert_allclose(each.numpy(), slow_implicit_loss(chosen, target, kappa), rtol=1e-12)


def test_the_gradient_equals_finite_differences() -> None:
    chosen, target = draw(weighted=True)
    values = chosen.values.clone().requires_grad_()

    assert torch.autograd.gradcheck(
        lambda x: quantile_huber_loss(chosen._replace(values=x), target, kappa=0.3).sum(), values
    )


@pytest.mark.parametrize(("kappa", "weighted"), [(0.3, True), (1.0, False)])
def test_by_hand_loss_and_gradient_are_those_of_autograd(kappa: float, weighted: bool) -> None:
    chosen, target = draw(weighted=weighted)
    values = chosen.values.clone().requires_grad_()
    each = quantile_huber_loss(chosen._replace(values=values), target, kappa=kappa)
    each.sum().backward()

    arrays = (chosen.values, chosen.fractions, target.values, target.weights)
    own, slope = quantile_huber_by_hand(*(array.numpy() for array in arrays), kappa=kappa)

    np.testing.assert_allclose(own, each.detach().numpy(), rtol=1e-12)
    np.testing.assert_allclose(slope, values.grad.numpy(), rtol=1e-12)  # type: ignore[union-attr]


class Model:
    """Model with fixed quantiles: of action a at a fraction t, 10 a + t."""

    def midpoints(self) -> Tensor:
        return torch.tensor([[0.25, 0.75]])

    def quantiles(self, obs: Any, fractions: Tensor) -> Tensor:
        return (10.0 * torch.arange(ACTIONS)[:, None] + fractions[:, None]).expand(len(obs), -1, -1)


def test_the_best_legal_action_is_taken_and_none_is_worth_nothing() -> None:
    family = ImplicitQuantiles()
    prediction = family.predict(Model(), torch.zeros(4, 1))
    judge = torch.tensor([[0.0, 2.0, 1.0]] * 4)
    mask = torch.tensor([[1, 1, 1], [1, 0, 1], [1, 0, 0], [0, 0, 0]])

    best = family.of_best(prediction, judge, mask)

    assert best.values.tolist() == [[10.25, 10.75], [20.25, 20.75], [0.25, 0.75], [0.0, 0.0]]
    assert family.of_best(prediction, judge, None).values.tolist() == [[10.25, 10.75]] * 4


def test_a_step_of_reward_shifts_and_shrinks_quantiles_and_an_end_leaves_the_reward() -> None:
    family = ImplicitQuantiles()
    after = Quantiles(
        torch.tensor([[1.0, 2.0], [3.0, torch.nan]]), torch.tensor([[0.25, 0.75]]), torch.full((1, 2), 0.5)
    )

    target = family.backup(
        torch.tensor([10.0, 20.0]), after, discount=torch.tensor([0.5, 0.9]), terminated=torch.tensor([False, True])
    )

    assert target.values.tolist() == [[10.5, 11.0], [20.0, 20.0]]
    assert family.expected_target(target).tolist() == [10.75, 20.0]


def test_a_kappa_not_above_0_and_shapes_that_would_broadcast_are_refused() -> None:
    with pytest.raises(ConfigError, match="kappa"):
        ImplicitQuantiles(kappa=0.0)
    family, (chosen, target) = ImplicitQuantiles(), draw()
    with pytest.raises(SchemaError, match="target"):
        family.loss(chosen, target._replace(values=target.values[:1]))
    with pytest.raises(SchemaError, match="action"):
        family.of_action(family.predict(Model(), torch.zeros(4, 1)), torch.zeros(4, 1, dtype=torch.int64))


# ---- fractions


def quantile_function(fraction: Tensor) -> Tensor:
    """Be a quantile function, which nowhere decreases: of a distribution with a long tail to the right."""
    return 5.0 * fraction**8 + fraction


def wasserstein(bounds: Tensor) -> float:
    """Return the 1-Wasserstein error of parts with these inner bounds [N - 1], by the midpoint rule."""
    edges = [0.0, *bounds.tolist(), 1.0]
    total = 0.0
    for low, high in pairwise(edges):
        width = (high - low) / 20_000
        inside = low + width * (torch.arange(20_000, dtype=torch.float64) + 0.5)
        middle = quantile_function(torch.tensor(0.5 * (low + high), dtype=torch.float64))
        total += float((quantile_function(inside) - middle).abs().sum()) * width
    return total


def test_the_closed_form_is_the_derivative_of_the_wasserstein_error() -> None:
    bounds = torch.tensor([0.12, 0.35, 0.5, 0.81], dtype=torch.float64)
    edges = torch.cat([torch.zeros(1), bounds, torch.ones(1)]).double()
    middles = 0.5 * (edges[1:] + edges[:-1])

    slope = fraction_gradient(quantile_function(bounds)[None], quantile_function(middles)[None])[0]

    step = 1e-4
    for i in range(len(bounds)):
        ends = []
        for sign in (1, -1):
            moved = bounds.clone()
            moved[i] += sign * step
            ends.append(wasserstein(moved))
        assert float(slope[i]) == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-3)


def test_the_fraction_loss_has_the_given_slope_and_the_entropys() -> None:
    torch.manual_seed(0)
    logits, slope = torch.randn(ROWS, N, dtype=torch.float64), torch.randn(ROWS, N - 1, dtype=torch.float64)

    def loss(logits: Tensor) -> Tensor:
        widths = logits.softmax(-1)
        entropy = -(widths * widths.log()).sum(-1)
        return fraction_loss(widths.cumsum(-1)[:, :-1], slope, entropy, entropy_weight=0.3).sum()

    def slow(logits: Tensor) -> float:
        """Return the sum over bounds of slope times bound, less the bonus, number by number."""
        total = 0.0
        for row in range(ROWS):
            widths = torch.exp(logits[row]) / torch.exp(logits[row]).sum()
            for i in range(N - 1):
                total += float(slope[row, i] * widths[: i + 1].sum())
            total += 0.3 * sum(float(width * torch.log(width)) for width in widths)
        return total

    leaf = logits.clone().requires_grad_()
    value = loss(leaf)
    value.backward()

    assert float(value.detach()) == pytest.approx(slow(logits), rel=1e-12)
    step = 1e-6
    for row, i in np.ndindex(2, N):
        ends = []
        for sign in (1, -1):
            moved = logits.clone()
            moved[row, i] += sign * step
            ends.append(slow(moved))
        assert leaf.grad is not None
        assert float(leaf.grad[row, i]) == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-6, abs=1e-8)


class Proposing:
    def predict(self, obs: Any) -> tuple[Tensor, Any]:
        parts = FractionProposal(1, 2)
        torch.nn.init.constant_(parts.linear.bias[1], float(np.log(3.0)))  # parts of 1/4 and 3/4
        torch.nn.init.zeros_(parts.linear.weight)
        return torch.tensor([[[4.0, 8.0], [0.0, 4.0]]]), parts(obs)


def test_a_proposed_quantile_counts_as_its_part_is_wide() -> None:
    family = ProposedQuantiles()

    prediction = family.predict(Proposing(), torch.ones(1, 1))

    torch.testing.assert_close(family.expected(prediction), torch.tensor([[7.0, 3.0]]))
    torch.testing.assert_close(prediction.fractions, torch.tensor([[0.125, 0.625]]))
