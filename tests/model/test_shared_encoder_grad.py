"""An actor and a critic on one encoder send it both their gradients, by hand as by autograd."""

import numpy as np
import pytest
import torch

from ding_like.model.flat_params import FlatParams
from ding_like.model.numpy_grad import NumpyGrad
from ding_like.model.vac import VAC


@pytest.mark.parametrize("share_encoder", [True, False])
@pytest.mark.parametrize("action_space", ["discrete", "continuous"])
def test_gradients_equal_autograds(share_encoder, action_space):
    torch.manual_seed(0)
    model = VAC(5, 3, action_space=action_space, share_encoder=share_encoder)
    params = FlatParams(model)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(7, 5)).astype(np.float32)
    output, value = model.actor_critic(torch.from_numpy(x))
    grad = rng.normal(size=(7, output.shape[1] + 1)).astype(np.float32)
    params.zero_grad()
    torch.autograd.backward([output, value], [torch.from_numpy(grad[:, :-1].copy()), torch.from_numpy(grad[:, -1])])
    expected = params.grad_vector.clone()

    by_hand = NumpyGrad(model, params)
    params.grad_vector.fill_(7.0)
    seen = by_hand.forward(x)
    by_hand.backward(grad.copy())

    np.testing.assert_allclose(seen[:, :-1], output.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(params.grad_vector.numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)
