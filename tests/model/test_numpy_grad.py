import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from ding_like.model.flat_params import FlatParams
from ding_like.model.numpy_networks import NumpyGrad, can_differentiate
from ding_like.model.q_networks import DQN


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 9),
    st.lists(st.integers(1, 12), min_size=1, max_size=3),
    st.integers(1, 5),
    st.booleans(),
    st.integers(0, 2),
    st.sampled_from(["relu", "tanh", "identity"]),
    st.integers(1, 17),
)
def test_gradients_equal_autograds(obs, hidden, actions, dueling, head_layers, activation, rows):
    torch.manual_seed(0)
    model = DQN(obs, actions, hidden, dueling=dueling, head_layer_num=head_layers, activation=activation)
    params = FlatParams(model)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, obs)).astype(np.float32)
    grad = rng.normal(size=(rows, actions)).astype(np.float32)
    q = model.q(torch.from_numpy(x))
    params.zero_grad()
    q.backward(torch.from_numpy(grad))
    expected = params.grad_vector.clone()

    by_hand = NumpyGrad(model, params)
    params.grad_vector.fill_(7.0)
    output = by_hand.forward(x)
    by_hand.backward(grad.copy())

    np.testing.assert_allclose(output, q.detach().numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(params.grad_vector.numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)


def test_one_layer_worked_by_hand():
    # y = 2 x1 + 3 x2 + 1 for x = (1, 4) is 15; with dL/dy = 10: dW = (10, 40), db = 10.
    layer = nn.Linear(2, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[2.0, 3.0]]))
        layer.bias.fill_(1.0)
    params = FlatParams(layer)
    by_hand = NumpyGrad(layer, params)

    assert by_hand.forward(np.array([[1.0, 4.0]], np.float32)).tolist() == [[15.0]]
    by_hand.backward(np.array([[10.0]], np.float32))

    assert params.grad_vector.tolist() == [10.0, 40.0, 10.0]


def test_it_sees_each_update():
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    params = FlatParams(model)
    by_hand = NumpyGrad(model, params)
    with torch.no_grad():
        params.data_vector.mul_(0.5)
    x = np.ones((4, 2), np.float32)

    np.testing.assert_allclose(by_hand.forward(x), model(torch.from_numpy(x)).detach().numpy(), rtol=1e-6)


def test_what_it_cannot_do_is_left_to_autograd():
    hooked = nn.Linear(2, 2)
    assert can_differentiate(hooked)
    hooked.register_forward_hook(lambda *_: None)
    unknown = {
        "gelu": nn.Sequential(nn.Linear(2, 2), nn.GELU()),
        "layer norm": nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)),
        "double": nn.Linear(2, 2).double(),
        "frozen": nn.Linear(2, 2).requires_grad_(False),
        "convolution": nn.Conv2d(1, 1, 1),
        "hook": hooked,
    }

    assert [name for name, module in unknown.items() if can_differentiate(module)] == []
