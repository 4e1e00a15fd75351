"""The quantile family: its loss beside a walk over all pairs, by hand, by autograd and by differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ding_like.errors import ConfigError, SchemaError
from ding_like.rl_utils.quantile import QuantileValue, quantile_huber

ROWS, ACTIONS, NUM = 5, 3, 6
KAPPAS = [1.0, 0.3, 2.5]


def slow_loss(theta: list[float], target: list[float], kappa: float) -> float:
    """Return the loss of one row, pair by pair: Dabney et al. 2018, algorithm 1 and eq. 9 and 10."""
    num, total = len(theta), 0.0
    for i, predicted in enumerate(theta):
        tau = (2 * i + 1) / (2 * num)
        for wanted in target:
            u = wanted - predicted
            huber = 0.5 * u * u if abs(u) <= kappa else kappa * (abs(u) - 0.5 * kappa)
            total += abs(tau - (1.0 if u < 0 else 0.0)) * huber / num
    return total


def drawn(seed: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return (quantiles [B, A, N], actions, targets [B, N], weights), errors on both sides of every kappa."""
    rng = np.random.default_rng(seed)
    quantiles = torch.from_numpy(20.0 + 2.0 * rng.normal(size=(ROWS, ACTIONS, NUM))).to(dtype)
    target = torch.from_numpy(20.0 + 2.0 * rng.normal(size=(ROWS, NUM))).to(dtype)
    weight = torch.from_numpy(rng.uniform(0.1, 2.0, ROWS)).to(dtype)
    return quantiles, torch.from_numpy(rng.integers(0, ACTIONS, ROWS)), target, weight


def weighted_loss(family: QuantileValue, *of: Tensor) -> Tensor:
    quantiles, action, target, weight = of
    return (weight * family.loss(family.of_action(quantiles, action), target).loss).mean()


@pytest.mark.parametrize("kappa", KAPPAS)
def test_loss_and_priority_equal_a_slow_walk_over_pairs(kappa: float) -> None:
    family, (quantiles, action, target, weight) = QuantileValue(NUM, kappa=kappa), drawn(0)

    each = family.loss(family.of_action(quantiles, action), target)

    expected = [slow_loss(quantiles[b, action[b]].tolist(), target[b].tolist(), kappa) for b in range(ROWS)]
    assert each.loss.tolist() == pytest.approx(expected, abs=1e-6)
    assert each.priority.tolist() == pytest.approx(expected, abs=1e-6) and not each.priority.requires_grad
    mean = sum(float(w) * loss for w, loss in zip(weight, expected, strict=True)) / ROWS
    assert float(weighted_loss(family, quantiles, action, target, weight)) == pytest.approx(mean, abs=1e-6)


def test_the_worked_example() -> None:
    # Quantiles 0 and 3 (tau 1/4, 3/4), both targets 1, kappa 1: u = 1 costs 1/4 * 1/2, u = -2 costs 1/4 * 3/2.
    family = QuantileValue(2)

    assert float(family.loss(torch.tensor([[0.0, 3.0]]), torch.tensor([[1.0, 1.0]])).loss) == pytest.approx(0.5)


def test_gradients_equal_finite_differences() -> None:
    family, (quantiles, action, target, weight) = QuantileValue(NUM, kappa=0.3), drawn(0)
    quantiles.requires_grad_()

    assert torch.autograd.gradcheck(lambda x: weighted_loss(family, x, action, target, weight), quantiles)


@pytest.mark.parametrize(("num", "kappa"), [(1, 1.0), (2, 0.3), (33, 2.5)])
def test_sums_over_sorted_targets_are_sums_over_pairs(num: int, kappa: float) -> None:
    rng = np.random.default_rng(num)
    theta, target = 500.0 + 3.0 * rng.normal(size=(2, ROWS, num))
    target[0] = theta[0]  # every error 0 somewhere
    target[1] = theta[1] + kappa  # and exactly kappa
    tau = (np.arange(num) + 0.5) / num
    leaf = torch.from_numpy(theta.copy()).requires_grad_()
    expected = QuantileValue(num, kappa=kappa).loss(leaf, torch.from_numpy(target)).loss
    expected.sum().backward()  # type: ignore[no-untyped-call]  # torch gives it no types
    assert leaf.grad is not None

    each, slope = quantile_huber(theta, target, tau=tau, kappa=kappa)

    np.testing.assert_allclose(each, expected.detach().numpy(), atol=1e-9)
    np.testing.assert_allclose(slope, leaf.grad.numpy(), atol=1e-9)


@pytest.mark.parametrize(("kappa", "is_weighted"), [(1.0, False), (0.3, True)])
def test_the_loss_by_hand_is_that_of_autograd(kappa: float, is_weighted: bool) -> None:
    family, (quantiles, action, target, weight) = QuantileValue(NUM, kappa=kappa), drawn(1, torch.float32)
    weight = weight if is_weighted else torch.ones(ROWS)
    leaf = quantiles.clone().requires_grad_()
    loss = weighted_loss(family, leaf, action, target, weight)
    loss.backward()  # type: ignore[no-untyped-call]  # torch gives it no types
    assert leaf.grad is not None

    by_hand = family.loss_by_hand(
        quantiles.numpy(), action.numpy(), target.numpy(), weight=weight.numpy() if is_weighted else None
    )

    assert by_hand.loss == pytest.approx(float(loss.detach()), rel=1e-6)
    np.testing.assert_allclose(by_hand.grad, leaf.grad.numpy(), atol=1e-6)
    assert (by_hand.grad.dtype, by_hand.priority.dtype) == (np.float32, np.float32)
    np.testing.assert_allclose(
        by_hand.priority, family.loss(family.of_action(quantiles, action), target).priority.numpy(), rtol=1e-5
    )


def test_a_target_that_is_not_finite_has_a_loss_that_is_not() -> None:
    quantiles, action, target, _ = drawn(0, torch.float32)
    target[2, 3] = float("inf")

    each = QuantileValue(NUM).loss_by_hand(quantiles.numpy(), action.numpy(), target.numpy(), weight=None)

    assert not np.isfinite(each.loss)


def test_a_target_is_every_next_quantile_shrunk_and_moved_and_after_an_end_the_reward() -> None:
    family = QuantileValue(2)
    following = torch.tensor([[1.0, 3.0], [float("nan"), 5.0], [2.0, 4.0]])
    reward, terminated = torch.tensor([1.0, 2.0, 0.0]), torch.tensor([False, True, False])
    for discount in (torch.tensor([0.5, 0.5, 0.5]), 0.5):
        target = family.backup(reward, following, discount=discount, terminated=terminated)
        by_hand = family.backup_by_hand(
            reward.numpy(),
            following.numpy(),
            discount=discount if isinstance(discount, float) else discount.numpy(),
            terminated=terminated.numpy(),
        )

        assert target.tolist() == [[1.5, 2.5], [2.0, 2.0], [1.0, 2.0]]
        assert by_hand.tolist() == target.tolist() and by_hand.dtype == np.float32


def test_what_is_expected_is_the_mean_of_the_quantiles() -> None:
    family, (quantiles, _, target, _) = QuantileValue(NUM), drawn(0, torch.float32)

    torch.testing.assert_close(family.expected(quantiles), quantiles.mean(-1))
    np.testing.assert_allclose(family.expected_by_hand(quantiles.numpy()), quantiles.mean(-1).numpy(), rtol=1e-6)
    torch.testing.assert_close(family.expected_target(target), target.mean(-1))


def test_the_best_legal_action_by_the_judge_is_the_next_value() -> None:
    quantiles = drawn(0)[0][:3]
    judge = torch.tensor([[1.0, 3.0, 2.0]] * 3)
    mask = np.array([[1, 1, 1], [1, 0, 1], [0, 0, 0]])

    best = QuantileValue(NUM).of_best(quantiles, judge, mask)

    assert torch.equal(best[0], quantiles[0, 1]) and torch.equal(best[1], quantiles[1, 2])
    assert best[2].tolist() == [0.0] * NUM  # nothing follows
    assert torch.equal(QuantileValue(NUM).of_best(quantiles, judge, None), quantiles[:, 1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(num_quantiles=0), "num_quantiles is 0"),
        (dict(num_quantiles=2.5), "num_quantiles is 2.5"),
        (dict(num_quantiles=8, kappa=0.0), "kappa is 0.0"),
        (dict(num_quantiles=8, kappa=float("nan")), "kappa is nan"),
    ],
)
def test_settings_that_make_no_loss_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        QuantileValue(**settings)


def test_targets_of_another_shape_are_refused() -> None:
    quantiles, _, target, _ = drawn(0)

    with pytest.raises(SchemaError, match="target has shape"):
        QuantileValue(NUM).loss(quantiles[:, 0], target[:, :1])
