"""The distribution of hybrid actions, held against torch's and against a sum over all choices."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import distributions as reference

from ding_like.errors import SchemaError
from ding_like.rl_utils.distributions import Hybrid

SEEDS = st.integers(0, 2**31)
ROWS = st.integers(1, 9)
# A choice with a parameter of its own, one that shares it, one with two, one with none.
MASK = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 1], [0, 0, 0]])
CHOICES, SIZE = MASK.shape
WIDTH = CHOICES + 2 * SIZE
SQUASH = pytest.mark.parametrize("squash", [False, True], ids=["plain", "squashed"])


def outputs(seed: int, rows: int) -> np.ndarray:
    return (0.5 * np.random.default_rng(seed).normal(size=(rows, WIDTH))).astype(np.float32)


def parts(row: torch.Tensor) -> tuple[reference.Categorical, torch.Tensor, torch.Tensor]:
    logit, mu, log_sigma = row.split([CHOICES, SIZE, SIZE])
    return reference.Categorical(logits=logit), mu, log_sigma.exp()


def normals(mu: torch.Tensor, sigma: torch.Tensor, *, squash: bool) -> list[reference.Distribution]:
    """Return the distribution of each parameter."""
    each = [reference.Normal(mu[j], sigma[j]) for j in range(SIZE)]
    return [reference.TransformedDistribution(one, reference.TanhTransform()) for one in each] if squash else each


def slow_log_prob(row: torch.Tensor, action: torch.Tensor, *, squash: bool) -> float:
    categorical, mu, sigma = parts(row)
    choice = int(action[0])
    total = float(categorical.log_prob(torch.tensor(choice)))
    for j in range(SIZE):
        if MASK[choice, j]:
            value = torch.tanh(action[1 + j]) if squash else action[1 + j]
            total += float(normals(mu, sigma, squash=squash)[j].log_prob(value))
    return total


def slow_entropy(row: torch.Tensor) -> float:
    """Return H(k) + sum over k of p(k) H(x_k), of normal distributions before they are squashed."""
    categorical, mu, sigma = parts(row)
    entropies = [float(one.entropy()) for one in normals(mu, sigma, squash=False)]
    of_parameters = sum(
        float(categorical.probs[k]) * sum(entropies[j] for j in range(SIZE) if MASK[k, j]) for k in range(CHOICES)
    )
    return float(categorical.entropy()) + of_parameters


@SQUASH
@given(SEEDS, ROWS)
def test_log_probability_and_entropy_equal_a_slow_walk(squash: bool, seed: int, rows: int) -> None:
    family, output = Hybrid(MASK, squash=squash), outputs(seed, rows)

    columns = family.sample(output, np.random.default_rng(seed))

    tensor, raw = torch.from_numpy(output).double(), torch.from_numpy(columns["action_raw"]).double()
    log_prob, entropy = family.log_prob_and_entropy(tensor.float(), raw.float())
    slow = [slow_log_prob(tensor[i], raw[i], squash=squash) for i in range(rows)]
    np.testing.assert_allclose(log_prob, slow, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(columns["log_prob"], slow, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(entropy, [slow_entropy(tensor[i]) for i in range(rows)], rtol=1e-4, atol=1e-4)
    assert columns["log_prob"].dtype == columns["action"].dtype == np.float32


@SQUASH
@given(SEEDS, ROWS, st.sampled_from([0.0, -0.3]))
def test_by_hand_equals_autograd(squash: bool, seed: int, rows: int, by_entropy: float) -> None:
    family = Hybrid(MASK, squash=squash)
    output, rng = outputs(seed, rows).astype(np.float64), np.random.default_rng(seed)
    action = family.sample(output.astype(np.float32), rng)["action_raw"].astype(np.float64)
    by_log_prob = rng.normal(size=rows)
    tensor = torch.from_numpy(output).requires_grad_()
    family._mask = family._mask.astype(np.float64)
    log_prob, entropy = family.log_prob_and_entropy(tensor, torch.from_numpy(action))
    ((log_prob * torch.from_numpy(by_log_prob)).sum() + by_entropy * entropy.sum()).backward()

    result = family.by_hand(output, action)

    np.testing.assert_allclose(result.log_prob, log_prob.detach(), atol=1e-5)
    np.testing.assert_allclose(result.entropy, entropy.detach(), atol=1e-5)
    np.testing.assert_allclose(result.backward(by_log_prob, by_entropy), tensor.grad, rtol=1e-5, atol=1e-5)


@given(SEEDS, ROWS)
def test_kl_equals_a_sum_over_choices(seed: int, rows: int) -> None:
    one, other = (torch.from_numpy(outputs(seed + i, rows)) for i in range(2))

    kl = Hybrid(MASK).kl(one, other)

    for i in range(rows):
        (categorical, mu, sigma), (other_categorical, other_mu, other_sigma) = parts(one[i]), parts(other[i])
        expected = float(reference.kl_divergence(categorical, other_categorical))
        of_each = reference.kl_divergence(reference.Normal(mu, sigma), reference.Normal(other_mu, other_sigma))
        for k in range(CHOICES):
            expected += float(categorical.probs[k]) * sum(float(of_each[j]) for j in range(SIZE) if MASK[k, j])
        assert float(kl[i]) == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_a_worked_example() -> None:
    # Logits 0 and log 3: probabilities 1/4 and 3/4. Choice 1 has parameter N(1, 2), drawn at 3: log N = -2.1121, so
    # log p = log 3/4 - 2.1121 = -2.3998. Entropy: 0.5623 + 3/4 * 2.1121 = 2.1464.
    family = Hybrid(np.array([[0], [1]]))
    output = torch.tensor([[0.0, np.log(3.0), 1.0, np.log(2.0)]], dtype=torch.float32)

    log_prob, entropy = family.log_prob_and_entropy(output, torch.tensor([[1.0, 3.0]]))
    of_the_other, _ = family.log_prob_and_entropy(output, torch.tensor([[0.0, 3.0]]))

    assert float(log_prob) == pytest.approx(-2.3998, abs=1e-4)
    assert float(entropy) == pytest.approx(2.1464, abs=1e-4)
    assert float(of_the_other) == pytest.approx(np.log(0.25), abs=1e-6)  # whose parameter counts nowhere


def test_actions_are_scaled_to_the_bounds_and_clipped_there() -> None:
    low, high = np.array([-1.0, 0.0, -np.inf]), np.array([3.0, 10.0, np.inf])
    output = np.zeros((1, WIDTH), np.float32)
    output[0, 2], output[0, 4:7] = 5.0, (9.0, -0.5, 7.0)

    assert Hybrid(MASK, low=low, high=high).mode(output).tolist() == [[2.0, 3.0, 2.5, 7.0]]


def test_a_mask_is_refused() -> None:
    with pytest.raises(SchemaError, match="action mask came with hybrid actions"):
        Hybrid(MASK).check_mask(np.ones((2, CHOICES)))
