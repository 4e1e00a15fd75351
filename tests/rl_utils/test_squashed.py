import math

import pytest
import torch
from torch.distributions import Normal, TanhTransform, TransformedDistribution

from ding_like.rl_utils.distributions import squashed_gaussian


def test_density_equals_torchs_transformed_distribution():
    generator = torch.Generator().manual_seed(0)
    mean, log_sigma, noise = 0.5 * torch.randn(3, 50, 4, generator=generator, dtype=torch.float64)
    squashed = TransformedDistribution(Normal(mean, log_sigma.exp()), TanhTransform(cache_size=1))

    action, log_prob = squashed_gaussian(mean, log_sigma, noise)

    u = mean + log_sigma.exp() * noise
    torch.testing.assert_close(action, torch.tanh(u))
    torch.testing.assert_close(log_prob, squashed.log_prob(squashed.transforms[0](u)).sum(dim=1))


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
