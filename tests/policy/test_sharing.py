"""Gradients of several workers: their mean, their random numbers, and policies that give none."""

from __future__ import annotations

import pytest
import torch

from ding_like.errors import ConfigError
from ding_like.policy.sharing import GradNoise, check_sharing, mean_gradient
from tests.contracts.grad_cases import GRAD_CASES
from tests.contracts.policy_cases import make


def test_the_mean_is_that_of_the_vectors() -> None:
    one = {"vectors": {"0": torch.tensor([1.0, 2.0])}, "moves": {"count": 3}}
    other = {"vectors": {"0": torch.tensor([3.0, 6.0])}, "moves": {"count": 3}}

    mean = mean_gradient([one, other])

    assert mean["vectors"]["0"].tolist() == [2.0, 4.0] and mean["moves"] == {"count": 3}


def test_a_policy_in_di_engines_style_is_refused() -> None:
    policy = make(GRAD_CASES["dqn"])
    check_sharing(policy)

    type(policy)._forward_learn = lambda self, data: {}
    try:
        with pytest.raises(ConfigError, match="_forward_learn"):
            check_sharing(policy)
    finally:
        del type(policy)._forward_learn


def draws_after(noise: GradNoise) -> torch.Tensor:
    noise.begin()
    return noise.normal(5)


def test_a_state_of_another_kind_of_device_seeds_this_one() -> None:
    of_a_gpu = torch.arange(16, dtype=torch.uint8)  # the size of a CUDA generator's
    one, other = GradNoise(torch.device("cpu")), GradNoise(torch.device("cpu"))
    for noise in (one, other):
        noise.load(of_a_gpu)

    first = draws_after(one)

    assert torch.equal(draws_after(one), first), "until the update is applied"
    assert torch.equal(draws_after(other), first), "two replicas draw alike"
    one.commit()
    assert not torch.equal(draws_after(one), first)
    other.load(of_a_gpu + 1)
    assert not torch.equal(draws_after(other), first)
