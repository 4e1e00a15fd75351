"""The random numbers of gradients follow from the state that a process is sent, whatever device sent it."""

from __future__ import annotations

import torch

from ding_like.policy.sharing import GradNoise


def draws_after(noise: GradNoise) -> torch.Tensor:
    noise.begin()
    return noise.normal((5,))


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
