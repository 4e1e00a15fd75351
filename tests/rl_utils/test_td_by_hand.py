"""The TD loss by hand is the one of autograd, with every option, in its value, its gradient and its errors."""

import itertools

import numpy as np
import pytest
import torch

from ding_like.rl_utils.value_family import ScalarValue
from tests.rl_utils.test_td import q_td_error

ROWS, ACTIONS = 6, 3
OPTIONS = list(itertools.product(["huber", "mse"], [False, True], [1.0, 0.3]))


@pytest.mark.parametrize(("loss", "is_weighted", "delta"), OPTIONS)
def test_it_equals_autograd(loss, is_weighted, delta):
    rng = np.random.default_rng(0)
    q = rng.normal(size=(ROWS, ACTIONS)).astype(np.float32)
    action = rng.integers(ACTIONS, size=ROWS)
    # Errors on both sides of both deltas.
    target = q[np.arange(ROWS), action] + np.array([-2.0, -0.5, -0.1, 0.1, 0.5, 2.0], np.float32)
    weight = rng.uniform(0.1, 1.0, ROWS).astype(np.float32) if is_weighted else None
    leaf = torch.from_numpy(q.copy()).requires_grad_()
    expected = q_td_error(
        leaf,
        torch.from_numpy(action),
        torch.from_numpy(target),
        weight=None if weight is None else torch.from_numpy(weight),
        loss=loss,
        delta=delta,
    )
    expected.loss.backward()

    value, grad, errors = ScalarValue(loss, delta=delta).loss_by_hand(q, action, target, weight=weight)

    np.testing.assert_allclose(value, expected.loss.item(), rtol=1e-6)
    np.testing.assert_allclose(grad, leaf.grad.numpy(), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(errors, expected.priority.numpy(), rtol=1e-6)


def test_weights_multiply_the_slope_of_their_rows():
    # Two rows, mse: slopes 2, 4 times weights 0.5, 0.25 over 2 rows are 0.5, 0.5; loss (0.5 * 1 + 0.25 * 4) / 2.
    q = np.array([[1.0, 0.0], [0.0, 2.0]], np.float32)

    value, grad, errors = ScalarValue("mse").loss_by_hand(
        q, np.array([0, 1]), np.zeros(2, np.float32), weight=np.array([0.5, 0.25], np.float32)
    )

    assert (value, errors.tolist()) == (0.75, [1.0, 2.0])
    assert grad.tolist() == [[0.5, 0.0], [0.0, 0.5]]
