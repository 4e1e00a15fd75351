"""Gradients of several workers are averaged, and stale ones count less; a policy that gives none is refused."""

from __future__ import annotations

import pytest
import torch

from ding_like.errors import ConfigError
from ding_like.policy.sharing import check_sharing, mean_gradient
from tests.contracts.grad_cases import GRAD_CASES
from tests.contracts.policy_cases import make


def test_the_mean_is_that_of_the_vectors() -> None:
    one = {"vectors": {"0": torch.tensor([1.0, 2.0])}, "moves": {"count": 3}}
    other = {"vectors": {"0": torch.tensor([3.0, 6.0])}, "moves": {"count": 3}}

    mean = mean_gradient([one, other], [1.0, 1.0])

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
