"""The losses of A2C against a slow walk over rows."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ding_like.errors import SchemaError
from ding_like.rl_utils.policy_gradient import a2c_loss


@given(st.integers(0, 2**31), st.integers(1, 12))
def test_losses_equal_a_slow_walk_over_rows(seed, rows):
    log_prob, value, advantage, return_ = torch.from_numpy(np.random.default_rng(seed).normal(size=(4, rows)))

    losses = a2c_loss(log_prob, value, advantage=advantage, return_=return_)

    walk = zip(log_prob.tolist(), value.tolist(), advantage.tolist(), return_.tolist(), strict=True)
    policy, error = np.mean([(-lp * adv, (v - target) ** 2) for lp, v, adv, target in walk], axis=0)
    assert float(losses.policy) == pytest.approx(policy, abs=1e-6)
    assert float(losses.value) == pytest.approx(error, abs=1e-6)


def test_gradients_of_the_worked_example():
    # Two rows: -(lp1 * 2 + lp2 * -1) / 2, so the gradient is -1 and 0.5; values 1 and 0 of targets 3 and 0:
    # 2 (1 - 3) / 2 = -2 and 0.
    log_prob, value = torch.zeros(2, requires_grad=True), torch.tensor([1.0, 0.0], requires_grad=True)

    losses = a2c_loss(log_prob, value, advantage=torch.tensor([2.0, -1.0]), return_=torch.tensor([3.0, 0.0]))
    (losses.policy + losses.value).backward()

    assert log_prob.grad.tolist() == [-1.0, 0.5]
    assert value.grad.tolist() == [-2.0, 0.0]


def test_values_of_another_shape_are_refused():
    with pytest.raises(SchemaError, match=r"value has shape \(3, 1\)"):
        a2c_loss(torch.zeros(3), torch.zeros(3, 1), advantage=torch.zeros(3), return_=torch.zeros(3))
