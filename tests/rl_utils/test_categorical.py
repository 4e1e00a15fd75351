"""The categorical family: its projection beside a walk over atoms, its loss by hand, by autograd and by differences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ding_like.errors import ConfigError, SchemaError
from ding_like.rl_utils.value_family import CategoricalValue

ROWS, ACTIONS, ATOMS = 6, 3, 7
FAMILY = CategoricalValue(-3.0, 3.0, ATOMS)  # atoms 1 apart
SUPPORT = [-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0]


def slow_projection(returns: list[float], probs: list[float]) -> list[float]:
    """Return what every atom gets of returns with these probabilities: Bellemare et al. 2017, algorithm 1."""
    target = [0.0] * ATOMS
    for value, prob in zip(returns, probs, strict=True):
        place = min(max(value, SUPPORT[0]), SUPPORT[-1]) - SUPPORT[0]
        lower, upper = math.floor(place), math.ceil(place)
        if lower == upper:
            target[lower] += prob
        else:
            target[lower] += prob * (upper - place)
            target[upper] += prob * (place - lower)
    return target


def backup(reward: float, probs: list[float], discount: float = 1.0, *, terminated: bool = False) -> list[float]:
    target = FAMILY.backup(
        torch.tensor([reward]), torch.tensor([probs]), discount=discount, terminated=torch.tensor([terminated])
    )
    result: list[float] = target[0].tolist()
    return result


def drawn(seed: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return (logits [B, A, N], actions, targets [B, N] with zeros among them, weights)."""
    rng = np.random.default_rng(seed)
    logits = torch.from_numpy(3.0 * rng.normal(size=(ROWS, ACTIONS, ATOMS))).to(dtype)
    target = torch.from_numpy(rng.dirichlet(np.full(ATOMS, 0.3), ROWS)).to(dtype)
    target[0] = torch.eye(ATOMS, dtype=dtype)[2]
    weight = torch.from_numpy(rng.uniform(0.1, 2.0, ROWS)).to(dtype)
    return logits, torch.from_numpy(rng.integers(0, ACTIONS, ROWS)), target, weight


def slow_loss(logits: Tensor, action: Tensor, target: Tensor) -> list[tuple[float, float]]:
    """Return (cross entropy, KL divergence) of each row, number by number."""
    found = []
    for row in range(ROWS):
        values = [math.exp(x) for x in logits[row, int(action[row])].tolist()]
        share = [math.log(value / sum(values)) for value in values]
        wanted = target[row].tolist()
        entropy = -sum(m * math.log(m) for m in wanted if m > 0)
        cross = -sum(m * log_p for m, log_p in zip(wanted, share, strict=True))
        found.append((cross, cross - entropy))
    return found


def weighted_loss(logits: Tensor, action: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    return (weight * FAMILY.loss(FAMILY.of_action(logits, action), target).loss).mean()


@pytest.mark.parametrize("seed", range(3))
def test_projection_equals_a_slow_walk_over_atoms(seed: int) -> None:
    rng = np.random.default_rng(seed)
    probs, reward = rng.dirichlet(np.ones(ATOMS), ROWS), 3.0 * rng.normal(size=ROWS)
    discount, terminated = rng.uniform(0.0, 1.0, ROWS), rng.random(ROWS) < 0.3

    target = FAMILY.backup(
        *(torch.from_numpy(each) for each in (reward, probs)),
        discount=torch.from_numpy(discount),
        terminated=torch.from_numpy(terminated),
    )

    for row in range(ROWS):
        following = 0.0 if terminated[row] else discount[row]
        expected = slow_projection([reward[row] + following * z for z in SUPPORT], probs[row].tolist())
        assert target[row].tolist() == pytest.approx(expected, abs=1e-12)


def test_returns_at_and_beyond_atoms_and_ends_are_placed_on_the_support() -> None:
    even, never = [1.0 / ATOMS] * ATOMS, [float("nan")] * ATOMS
    for place, atom in enumerate(SUPPORT):
        assert backup(atom, even, terminated=True) == pytest.approx(np.eye(ATOMS)[place].tolist(), abs=1e-6)
    for reward, end in ((99.0, -1), (-99.0, 0), (float("inf"), -1)):
        for terminated in (True, False):
            target = backup(reward, even, terminated=terminated)
            assert target[end] == pytest.approx(1.0) and min(target) >= 0.0
    # After an end the reward is certain, whatever the next value is.
    assert backup(1.25, never, terminated=True) == pytest.approx([0, 0, 0, 0, 0.75, 0.25, 0], abs=1e-6)


def test_the_backup_by_hand_is_that_of_tensors() -> None:
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(ATOMS), ROWS).astype(np.float32)
    reward, terminated = rng.normal(size=ROWS).astype(np.float32), rng.random(ROWS) < 0.5
    for discount in (0.9, rng.uniform(0.0, 1.0, ROWS).astype(np.float32)):
        arrays = FAMILY.backup_by_hand(reward, probs, discount=discount, terminated=terminated)
        tensors = FAMILY.backup(
            torch.from_numpy(reward),
            torch.from_numpy(probs),
            discount=torch.as_tensor(discount),
            terminated=torch.from_numpy(terminated),
        )

        assert np.array_equal(arrays, tensors.numpy())


@pytest.mark.parametrize("seed", range(2))
def test_loss_and_priority_equal_a_slow_walk_over_atoms(seed: int) -> None:
    logits, action, target, weight = drawn(seed)

    each = FAMILY.loss(FAMILY.of_action(logits, action), target)

    expected = slow_loss(logits, action, target)
    assert each.loss.tolist() == pytest.approx([cross for cross, _ in expected], abs=1e-6)
    assert each.priority.tolist() == pytest.approx([divergence for _, divergence in expected], abs=1e-6)
    mean = sum(float(w) * cross for w, (cross, _) in zip(weight, expected, strict=True)) / ROWS
    assert float(weighted_loss(logits, action, target, weight)) == pytest.approx(mean, abs=1e-6)


def test_gradients_equal_finite_differences() -> None:
    logits, action, target, weight = drawn(0)
    logits.requires_grad_()

    assert torch.autograd.gradcheck(lambda x: weighted_loss(x, action, target, weight), logits)


@pytest.mark.parametrize("is_weighted", [False, True])
def test_the_loss_by_hand_is_that_of_autograd(is_weighted: bool) -> None:
    logits, action, target, weight = drawn(0, torch.float32)
    weight = weight if is_weighted else torch.ones(ROWS)
    leaf = logits.clone().requires_grad_()
    loss = weighted_loss(leaf, action, target, weight)
    loss.backward()  # type: ignore[no-untyped-call]  # torch gives it no types
    assert leaf.grad is not None

    by_hand = FAMILY.loss_by_hand(
        logits.numpy(), action.numpy(), target.numpy(), weight=weight.numpy() if is_weighted else None
    )

    assert by_hand.loss == pytest.approx(float(loss.detach()), rel=1e-6)
    np.testing.assert_allclose(by_hand.grad, leaf.grad.numpy(), atol=1e-6)
    assert by_hand.grad.dtype == np.float32
    priority = FAMILY.loss(FAMILY.of_action(logits, action), target).priority
    np.testing.assert_allclose(by_hand.priority, priority.numpy(), atol=1e-5)


def test_no_priority_is_below_zero_where_the_prediction_is_right() -> None:
    rng = np.random.default_rng(0)
    target = rng.dirichlet(np.ones(ATOMS), 1000).astype(np.float32)
    logits = np.log(target)[:, None]

    by_hand = FAMILY.loss_by_hand(logits, np.zeros(1000, int), target, weight=None).priority
    by_tensors = FAMILY.loss(torch.from_numpy(logits[:, 0]), torch.from_numpy(target)).priority

    assert 0.0 <= by_hand.min() and by_hand.max() < 1e-5
    assert 0.0 <= float(by_tensors.min()) and float(by_tensors.max()) < 1e-5


def test_huge_logits_have_a_loss() -> None:
    logits = np.array([[[1e4, 0.0, 0, 0, 0, 0, 0]]], np.float32)
    target = np.eye(ATOMS, dtype=np.float32)[None, 1]

    assert FAMILY.loss_by_hand(logits, np.zeros(1, int), target, weight=None).loss == pytest.approx(1e4)
    assert float(FAMILY.loss(torch.from_numpy(logits[:, 0]), torch.from_numpy(target)).loss) == pytest.approx(1e4)


def test_a_prediction_that_is_not_finite_has_a_loss_that_is_not() -> None:
    logits, action, target, _ = drawn(0, torch.float32)
    for bad in (float("nan"), float("inf")):
        logits[2, action[2], 3] = bad
        assert not np.isfinite(FAMILY.loss_by_hand(logits.numpy(), action.numpy(), target.numpy(), weight=None).loss)


def test_what_is_expected_is_the_mean_of_the_distribution() -> None:
    logits, action, target, _ = drawn(0, torch.float32)
    expected = torch.einsum("ban,n->ba", logits.softmax(-1), torch.tensor(SUPPORT))

    torch.testing.assert_close(FAMILY.expected(logits), expected)
    np.testing.assert_allclose(FAMILY.expected_by_hand(logits.numpy()), expected.numpy(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(FAMILY.expected_target(target), (target * torch.tensor(SUPPORT)).sum(-1))
    chosen = FAMILY.of_action(logits, action)
    assert all(torch.equal(chosen[row], logits[row, action[row]]) for row in range(ROWS))


def test_the_best_legal_action_by_the_judge_is_the_next_value() -> None:
    logits, _, _, _ = drawn(0)
    judge = torch.tensor([[1.0, 3.0, 2.0]] * 3, dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1], [1, 0, 1], [0, 0, 0]])

    best = FAMILY.of_best(logits[:3], judge, mask)

    torch.testing.assert_close(best[0], logits[0, 1].softmax(-1))
    torch.testing.assert_close(best[1], logits[1, 2].softmax(-1))
    assert best[2].tolist() == pytest.approx([0, 0, 0, 1, 0, 0, 0])  # nothing follows: 0 for certain
    torch.testing.assert_close(FAMILY.of_best(logits[:3], judge, None)[2], logits[2, 1].softmax(-1))


@pytest.mark.parametrize(
    ("support", "message"),
    [
        ((0.0, 1.0, 1), "n_atom is 1"),
        ((0.0, 1.0, 2.5), "n_atom is 2.5"),
        ((1.0, 1.0, 51), "v_min is 1.0 and v_max is 1.0"),
        ((0.0, float("inf"), 51), "v_max is inf"),
    ],
)
def test_a_support_that_is_none_is_refused(support: tuple[Any, Any, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CategoricalValue(*support)


def test_shapes_that_would_broadcast_are_refused() -> None:
    logits, action, target, _ = drawn(0)

    with pytest.raises(SchemaError, match="action has shape"):
        FAMILY.of_action(logits, action[:, None])
    with pytest.raises(SchemaError, match="target has shape"):
        FAMILY.loss(logits[:, 0], target[:, :1])
