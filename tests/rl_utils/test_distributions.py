"""Families of action distributions, against torch and slow versions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import distributions as reference
from torch.distributions import Normal, TanhTransform, TransformedDistribution

from ding_like.errors import ConfigError, SchemaError
from ding_like.rl_utils.distributions import (
    Categorical,
    Gaussian,
    Hybrid,
    MultiCategorical,
    build_family,
    mask_logits,
    squashed_gaussian,
    squashed_gaussian_by_hand,
)

SEEDS = st.integers(0, 2**31)
ROWS = st.integers(1, 9)


# A choice with a parameter of its own, one that shares it, one with two, one with none.
MASK = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 1], [0, 0, 0]])
CHOICES, SIZE = MASK.shape
WIDTH = CHOICES + 2 * SIZE
FAMILIES = {
    "categorical": (Categorical(), 3),
    "multi": (MultiCategorical([2, 3]), 5),
    "gaussian": (Gaussian(2), 4),
    "squashed": (Gaussian(2, squash=True), 4),
    "hybrid": (Hybrid(MASK), WIDTH),
    "hybrid squashed": (Hybrid(MASK, squash=True), WIDTH),
}


def numbers(seed: int, *shape: int, scale: float = 2.0):
    return (scale * np.random.default_rng(seed).normal(size=shape)).astype(np.float32)


class Draws:
    """Generator that draws given numbers."""

    def __init__(self, *draws):
        self._draws = np.array(draws)

    def random(self, shape):
        return self._draws.reshape(shape)


def evaluate(family, output, columns):
    log_prob, entropy = family.log_prob_and_entropy(torch.from_numpy(output), torch.from_numpy(columns[family.column]))
    return log_prob.numpy(), entropy.numpy()


@given(SEEDS, ROWS, st.integers(1, 6))
def test_categorical_equals_torch(seed, rows, actions):
    output = numbers(seed, rows, actions)

    columns = Categorical().sample(output, np.random.default_rng(seed))

    expected = reference.Categorical(logits=torch.from_numpy(output))
    log_prob, entropy = evaluate(Categorical(), output, columns)
    np.testing.assert_allclose(columns["log_prob"], log_prob, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(log_prob, expected.log_prob(torch.from_numpy(columns["action"])), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(entropy, expected.entropy(), rtol=1e-5, atol=1e-6)
    assert columns["log_prob"].dtype == np.float32


@given(SEEDS, ROWS, st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_several_actions_at_once_add_up_their_factors(seed, rows, sizes):
    family, output = MultiCategorical(sizes), numbers(seed, rows, sum(sizes))

    columns = family.sample(output, np.random.default_rng(seed))

    assert columns["action"].shape == (rows, len(sizes))
    assert (columns["action"] < sizes).all()
    log_prob, entropy = evaluate(family, output, columns)
    np.testing.assert_allclose(columns["log_prob"], log_prob, rtol=1e-5, atol=1e-5)
    factors = [reference.Categorical(logits=part) for part in torch.from_numpy(output).split(sizes, dim=1)]
    actions = torch.from_numpy(columns["action"])
    expected = sum(factor.log_prob(actions[:, k]) for k, factor in enumerate(factors))
    np.testing.assert_allclose(log_prob, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(entropy, sum(factor.entropy() for factor in factors), rtol=1e-5, atol=1e-5)


@given(SEEDS, ROWS, st.integers(1, 3))
def test_gaussian_equals_torch(seed, rows, size):
    family, output = Gaussian(size), numbers(seed, rows, 2 * size, scale=1.0)

    columns = family.sample(output, np.random.default_rng(seed))

    log_prob, entropy = evaluate(family, output, columns)
    mu, log_sigma = torch.from_numpy(output).chunk(2, dim=1)
    expected = reference.Independent(reference.Normal(mu, log_sigma.exp()), 1)
    np.testing.assert_allclose(columns["log_prob"], log_prob, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        log_prob, expected.log_prob(torch.from_numpy(columns["action_raw"])), rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(entropy, expected.entropy(), rtol=1e-5, atol=1e-5)


@given(SEEDS, ROWS, st.integers(1, 3))
def test_squashed_gaussian_has_the_density_of_its_result(seed, rows, size):
    family, output = Gaussian(size, squash=True), numbers(seed, rows, 2 * size, scale=0.5)

    columns = family.sample(output, np.random.default_rng(seed))

    mu, log_sigma = torch.from_numpy(output).double().chunk(2, dim=1)
    normal = reference.Normal(mu, log_sigma.exp())
    squashed = reference.Independent(reference.TransformedDistribution(normal, reference.TanhTransform()), 1)
    raw = torch.from_numpy(columns["action_raw"]).double()
    expected = squashed.log_prob(torch.tanh(raw)).numpy()
    log_prob, _ = evaluate(family, output, columns)
    np.testing.assert_allclose(columns["log_prob"], expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(log_prob, expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(columns["action"], np.tanh(columns["action_raw"]), rtol=1e-6)


@pytest.mark.parametrize("name", FAMILIES)
@given(SEEDS, ROWS, st.sampled_from([0.0, -0.3]))
def test_by_hand_equals_autograd(name, seed, rows, by_entropy):
    family, width = FAMILIES[name]
    if isinstance(family, Hybrid):
        family._mask = family._mask.astype(np.float64)
    output, rng = numbers(seed, rows, width, scale=0.5).astype(np.float64), np.random.default_rng(seed)
    action = family.sample(output.astype(np.float32), rng)[family.column]
    if action.dtype == np.float32:  # in whose rounding the two ways differ, close to the bounds of a squashed action
        action = action.astype(np.float64)
    by_log_prob = rng.normal(size=rows)
    tensor = torch.from_numpy(output).requires_grad_()
    log_prob, entropy = family.log_prob_and_entropy(tensor, torch.from_numpy(action))
    ((log_prob * torch.from_numpy(by_log_prob)).sum() + by_entropy * entropy.sum()).backward()

    result = family.by_hand(output, action)

    np.testing.assert_allclose(result.log_prob, log_prob.detach(), atol=1e-6)
    np.testing.assert_allclose(result.entropy, entropy.detach(), atol=1e-6)
    np.testing.assert_allclose(result.backward(by_log_prob, by_entropy), tensor.grad, rtol=1e-6, atol=1e-6)


def test_log_probabilities_of_worked_examples():
    # Logits 0 and log 3: probabilities 1/4 and 3/4, entropy 1/4 log 4 + 3/4 log 4/3 = 0.5623.
    log_prob, entropy = Categorical().log_prob_and_entropy(torch.tensor([[0.0, math.log(3.0)]]), torch.tensor([1]))
    assert float(log_prob) == pytest.approx(math.log(0.75))
    assert float(entropy) == pytest.approx(0.5623, abs=1e-4)

    # N(1, 2) at 3: one sigma away, so -1/2 - log 2 - log sqrt(2 pi) = -2.1121; entropy 1/2 + log 2 + 0.9189 = 2.1121.
    output, action = torch.tensor([[1.0, math.log(2.0)]]), torch.tensor([[3.0]])
    log_prob, entropy = Gaussian(1).log_prob_and_entropy(output, action)
    assert float(log_prob) == pytest.approx(-2.1121, abs=1e-4)
    assert float(entropy) == pytest.approx(2.1121, abs=1e-4)

    # The same squashed: tanh(3)^2 = 0.990134, and -2.1121 - log(1 - 0.990134) = 2.5065.
    log_prob, _ = Gaussian(1, squash=True).log_prob_and_entropy(output, action)
    assert float(log_prob) == pytest.approx(2.5065, abs=1e-4)


def test_squashed_density_stays_finite_far_out():
    log_prob, _ = Gaussian(1, squash=True).log_prob_and_entropy(torch.tensor([[50.0, 0.0]]), torch.tensor([[50.0]]))

    # -log(1 - tanh(50)^2) is about 2 * 50 - log 4.
    assert float(log_prob) == pytest.approx(-0.9189 + 100 - math.log(4.0), abs=1e-3)


def test_actions_are_drawn_as_often_as_their_probability_says():
    output = np.log(np.tile(np.array([[0.2, 0.5, 0.3]], np.float32), (20_000, 1)))

    action = Categorical().sample(output, np.random.default_rng(0))["action"]

    np.testing.assert_allclose(np.bincount(action) / 20_000, [0.2, 0.5, 0.3], atol=0.01)


def test_forbidden_actions_are_never_drawn_and_the_only_legal_one_is_certain():
    output, mask = numbers(0, 1, 5), np.array([[0, 1, 0, 1, 0]])
    for draw in (0.0, 0.5, 1 - 2**-53):
        columns = Categorical().sample(mask_logits(output, mask), Draws(draw))
        assert columns["action"][0] in (1, 3) and np.isfinite(columns["log_prob"]).all()

    only = torch.from_numpy(mask_logits(output, np.array([[0, 1, 0, 0, 0]])))
    log_prob, entropy = Categorical().log_prob_and_entropy(only, torch.tensor([1]))
    assert (float(log_prob), float(entropy)) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("family", "width"),
    [(Categorical(), 3), (MultiCategorical([2, 3]), 5), (Gaussian(2), 4)],
    ids=["one", "two", "box"],
)
def test_a_lane_draws_the_same_beside_more_lanes(family, width):
    output = numbers(0, 6, width)

    few = family.sample(output[:2], np.random.default_rng(3))
    many = family.sample(output, np.random.default_rng(3))

    for name, column in few.items():
        np.testing.assert_array_equal(column, many[name][:2])


def test_most_likely_actions():
    output = np.array([[0.0, 2.0, 1.0, 3.0, -1.0]], np.float32)

    assert Categorical().mode(output).tolist() == [3]
    assert MultiCategorical([3, 2]).mode(output).tolist() == [[1, 0]]
    assert Gaussian(2).mode(np.array([[0.5, -7.0, 1.0, 1.0]], np.float32)).tolist() == [[0.5, -7.0]]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ([0.0, 0.5, 3.0], [1.0, 7.5, 3.0]),  # the middle, three quarters, and no bounds at all
        ([-1.0, 1.0, 0.0], [-1.0, 10.0, 0.0]),
        ([9.0, -9.0, -9.0], [3.0, 0.0, -9.0]),
    ],
)
def test_actions_are_scaled_to_the_bounds_and_clipped_there(raw, expected):
    low, high = np.array([-1.0, 0.0, -np.inf]), np.array([3.0, 10.0, np.inf])
    family = Gaussian(3, low=low, high=high)

    assert family.to_env(np.array([raw], np.float32)).tolist() == [expected]
    half = Gaussian(1, low=np.array([0.0]), high=np.array([np.inf]))  # one bound: the unit is kept, and that bound
    assert half.to_env(np.array([[-3.0], [5.0]], np.float32)).tolist() == [[0.0], [5.0]]


def test_squashed_actions_fill_the_bounds_and_never_leave_them():
    family = Gaussian(1, low=np.array([-0.1]), high=np.array([0.7]), squash=True)

    action = family.to_env(np.array([[-40.0], [0.0], [40.0]], np.float32))

    np.testing.assert_allclose(action, [[-0.1], [0.3], [0.7]], atol=1e-7)
    assert action.min() >= np.float32(-0.1) and action.max() <= np.float32(0.7)


def test_kinds_of_action_space_have_their_families():
    assert isinstance(build_family("discrete", 3), Categorical)
    assert isinstance(build_family("discrete", [3]), MultiCategorical)
    assert isinstance(build_family("continuous", 2), Gaussian)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: build_family("hybrid", 2), "'hybrid'; expected 'discrete' or 'continuous'"),
        (lambda: Gaussian(2, low=np.zeros(3), high=np.ones(3)), "2 continuous actions need as many bounds"),
        (lambda: Gaussian(1, low=np.zeros(1), high=np.array([np.inf]), squash=True), "action_bound='clip'"),
        (lambda: Hybrid(MASK).check_mask(np.ones((2, CHOICES))), "action mask came with hybrid actions"),
        (lambda: Gaussian(2).check_mask(np.ones((2, 2))), "action mask came with continuous actions"),
    ],
)
def test_what_does_not_fit_is_refused(make, message):
    with pytest.raises((ConfigError, SchemaError), match=message):
        make()


def test_kl_is_0_of_equal_outputs_and_counts_no_forbidden_action():
    output, other = (torch.from_numpy(numbers(seed, 5, 4)) for seed in (0, 1))
    mask = torch.tensor([1, 0, 1, 1]).expand(5, 4) == 0

    assert not Categorical().kl(output, output).any()
    masked = Categorical().kl(output.masked_fill(mask, -1e9), other.masked_fill(mask, -1e9))
    torch.testing.assert_close(masked, Categorical().kl(output[:, [0, 2, 3]], other[:, [0, 2, 3]]))


def test_density_equals_torchs_transformed_distribution():
    generator = torch.Generator().manual_seed(0)
    mean, log_sigma, noise = 0.5 * torch.randn(3, 50, 4, generator=generator, dtype=torch.float64)
    squashed = TransformedDistribution(Normal(mean, log_sigma.exp()), TanhTransform(cache_size=1))

    action, log_prob = squashed_gaussian(mean, log_sigma, noise)

    u = mean + log_sigma.exp() * noise
    torch.testing.assert_close(action, torch.tanh(u))
    torch.testing.assert_close(log_prob, squashed.log_prob(squashed.transforms[0](u)).sum(dim=1))


def test_squashed_gaussian_by_hand_equals_autograd():
    rng = np.random.default_rng(0)
    output, noise, weight = (3.0 * rng.normal(size=(50, size)) for size in (8, 4, 4))
    output[:5, 4:] = 30.0  # log sigmas beyond the limit, which have no gradient
    leaf = torch.from_numpy(output.copy()).requires_grad_()
    action, log_prob = squashed_gaussian(*leaf.chunk(2, dim=1), torch.from_numpy(noise))
    ((torch.from_numpy(weight) * action).sum() + 0.3 * log_prob.sum()).backward()

    found = squashed_gaussian_by_hand(output, noise)

    np.testing.assert_allclose(found.action, action.detach().numpy(), atol=1e-12)
    np.testing.assert_allclose(found.log_prob, log_prob.detach().numpy(), atol=1e-9)
    np.testing.assert_allclose(found.backward(weight, 0.3), leaf.grad.numpy(), atol=1e-9)


@pytest.mark.parametrize("mean", [-60.0, 60.0])
def test_far_out_the_density_and_its_gradient_stay_exact(mean):
    # tanh(60) is 1 in float32, and the slope 1 - tanh^2 would be 0.
    start = torch.tensor([[mean]], requires_grad=True)

    action, log_prob = squashed_gaussian(start, torch.zeros(1, 1), torch.zeros(1, 1))
    log_prob.sum().backward()

    slope = 2 * (math.log(2) - 60)
    assert action.abs().item() == 1.0
    assert log_prob.item() == pytest.approx(-0.5 * math.log(2 * math.pi) - slope, rel=1e-6)
    assert start.grad.item() == pytest.approx(math.copysign(2.0, mean))


def test_gradient_equals_finite_differences():
    generator = torch.Generator().manual_seed(1)
    mean, log_sigma, noise = torch.randn(3, 5, 2, generator=generator, dtype=torch.float64)

    assert torch.autograd.gradcheck(
        lambda m, s: squashed_gaussian(m, s, noise), (mean.requires_grad_(), log_sigma.requires_grad_())
    )


def test_a_standard_deviation_out_of_range_is_held():
    huge, _ = squashed_gaussian(torch.zeros(1, 1), torch.full((1, 1), 50.0), torch.full((1, 1), 0.01))

    assert huge.item() == pytest.approx(math.tanh(0.01 * math.exp(2.0)), rel=1e-5)


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


def test_parameters_are_scaled_to_the_bounds_and_clipped_there() -> None:
    low, high = np.array([-1.0, 0.0, -np.inf]), np.array([3.0, 10.0, np.inf])
    output = np.zeros((1, WIDTH), np.float32)
    output[0, 2], output[0, 4:7] = 5.0, (9.0, -0.5, 7.0)

    assert Hybrid(MASK, low=low, high=high).mode(output).tolist() == [[2.0, 3.0, 2.5, 7.0]]
