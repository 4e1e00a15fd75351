"""The numpy forward equals torch's, follows the live parameters, and knows what it does not know."""

from __future__ import annotations

import copy
import pickle
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from ding_like.errors import SchemaError
from ding_like.model import DQN, ConvEncoder, FlatParams
from ding_like.model.layers import factor_noise
from ding_like.model.numpy_networks import NumpyGrad, can_differentiate, numpy_forward
from ding_like.model.q_networks import C51DQN, QRDQN, RainbowDQN
from ding_like.model.vac import VAC
from tests.model.test_vac import KINDS, SMALL


def torch_forward(module, x):
    with torch.no_grad():
        run = module.q if isinstance(module, DQN) else module
        return run(torch.from_numpy(x)).numpy()


def observations(num_rows, *shape, seed=0):
    return np.random.default_rng(seed).normal(size=(num_rows, *shape)).astype(np.float32)


def assert_follows(forward, module, x):
    np.testing.assert_allclose(forward(x), torch_forward(module, x), rtol=1e-5, atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 9),
    st.lists(st.integers(1, 20), min_size=1, max_size=3),
    st.integers(1, 5),
    st.booleans(),
    st.integers(0, 2),
    st.sampled_from(["relu", "tanh", "identity"]),
    st.integers(1, 17),
)
def test_q_values_and_gradients_equal_torchs(obs, hidden, actions, dueling, head_layers, activation, rows):
    torch.manual_seed(0)
    model = DQN(obs, actions, hidden, dueling=dueling, head_layer_num=head_layers, activation=activation)

    assert_follows(numpy_forward(model), model, observations(rows, obs))
    assert_gradients(model, observations(rows, obs))


def output_of(model, x, noise):
    """Return what numpy gives of a model."""
    if isinstance(model, RainbowDQN):
        return model.logits(x, noise)
    if isinstance(model, VAC):
        return torch.cat([part.view(len(x), -1) for part in model.actor_critic(x)], dim=1)
    return model.points(x)


def assert_gradients(model, x, noise=None):
    """Hold a pass forwards and back in numpy against autograd's; parameters begin with gradients of another pass."""
    params = FlatParams(model)
    wanted = output_of(model, torch.from_numpy(x), noise)
    grad = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(1))
    wanted.backward(grad)
    expected = params.grad_vector.clone()
    by_hand = NumpyGrad(model, params)
    params.grad_vector.fill_(7.0)

    ours = by_hand.forward(x, None if noise is None else noise.numpy())
    by_hand.backward(grad.numpy().copy())

    np.testing.assert_allclose(ours, wanted.detach().numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(params.grad_vector.numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)


PARTS = ("dueling", "distributional", "noise")
FULL = dict.fromkeys(PARTS, True)
RAINBOWS = [FULL, *(dict(FULL, **{part: False}) for part in PARTS)]  # all parts, and each alone switched off
RAINBOWS += [dict(head_layer_num=0), dict(head_layer_num=2, head_hidden_size=7, activation="tanh")]
NETWORKS = [
    *(partial(C51DQN, dueling=dueling, head_layer_num=int(dueling), n_atom=7) for dueling in (True, False)),
    *(partial(QRDQN, dueling=dueling, head_layer_num=int(dueling), num_quantiles=7) for dueling in (True, False)),
    *(partial(RainbowDQN, n_atom=5, **form) for form in RAINBOWS),
]
VACS = [
    partial(VAC, **{**SMALL, "actor_head_layer_num": number % 2, "orthogonal_init": False, **kind}, share_encoder=share)
    for number, kind in enumerate(KINDS)
    for share in [number % 2 == 0]
]
RESIDUAL = [partial(VAC, 3, 2, encoder_hidden_size_list=[6] * 3, block="simba", share_encoder=s) for s in (True, False)]


@pytest.mark.parametrize(
    "make", [*(partial(make, 3, 4, [8, 6]) for make in NETWORKS), *(partial(v, 3) for v in VACS), *RESIDUAL]
)
def test_numpy_gives_and_differentiates_what_torch_does(make):
    torch.manual_seed(0)
    model, x = make(), observations(9, 3)
    size = getattr(model, "noise_size", 0)
    generator = torch.Generator().manual_seed(0)
    noise = factor_noise(torch.randn(size, generator=generator)) if size else None
    rows = factor_noise(torch.randn(9, size, generator=generator).double()) if size else None

    for drawn in (None, noise):
        assert_gradients(model, x, drawn)
        ours = numpy_forward(model)(x, None if drawn is None else drawn.numpy())
        np.testing.assert_allclose(ours, output_of(model, torch.from_numpy(x), drawn).detach(), rtol=1e-5, atol=1e-5)
    model.double()
    ours = numpy_forward(model)(x.astype(np.float64), None if rows is None else rows.numpy())
    wanted = output_of(model, torch.from_numpy(x).double(), rows).detach()
    np.testing.assert_allclose(ours, wanted, rtol=1e-12, atol=1e-12)


def test_plain_stacks_equal_torch():
    net = nn.Sequential(
        nn.Flatten(), nn.Sequential(nn.Linear(6, 8, bias=False), nn.Tanh()), nn.Identity(), nn.Linear(8, 2), nn.ReLU()
    )

    assert_follows(numpy_forward(net), net, observations(5, 2, 3))


def test_observations_of_other_dtypes_are_cast():
    model = DQN(3, 2, [4])
    x = np.array([[0, 1, 255]], dtype=np.uint8)

    np.testing.assert_array_equal(numpy_forward(model)(x), numpy_forward(model)(x.astype(np.float32)))


def test_optimizer_steps_show_through():
    model = DQN(3, 2, [4])
    flat = FlatParams(model)
    forward = numpy_forward(model)
    x = observations(5, 3)
    before = forward(x)

    flat.backward(model.q(torch.from_numpy(x)).sum())
    flat.data_vector.sub_(flat.grad_vector, alpha=0.1)

    assert np.abs(forward(x) - before).max() > 0.01
    assert_follows(forward, model, x)


def test_parameters_that_are_laid_flat_replaced_or_cast_are_noticed():
    model = DQN(3, 2, [4])
    forward = numpy_forward(model)

    FlatParams(model).data_vector.mul_(2.0)
    assert_follows(forward, model, observations(5, 3))

    model.load_state_dict(DQN(3, 2, [4]).state_dict(), assign=True)
    assert_follows(forward, model, observations(5, 3))

    model.double()
    assert forward(observations(5, 3)).dtype == np.float64


def test_parameters_that_leave_the_cpu_are_reported():
    model = DQN(3, 2, [4])
    forward = numpy_forward(model)

    model.to("meta")

    with pytest.raises(SchemaError, match="parameters left the CPU"):
        forward(observations(5, 3))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_a_copy_follows_the_copied_module(duplicate):
    model = DQN(3, 2, [4])

    twin, twin_forward = duplicate((model, numpy_forward(model)))
    with torch.no_grad():
        for param in twin.parameters():
            param.add_(1.0)

    assert_follows(twin_forward, twin, observations(5, 3))


def test_results_and_observations_share_no_memory():
    forward = numpy_forward(DQN(3, 2, [4]))
    x = observations(5, 3)
    kept = x.copy()

    first = forward(x)
    result = first.copy()
    forward(2 * x)

    np.testing.assert_array_equal(first, result)
    np.testing.assert_array_equal(x, kept)


def test_observations_of_another_shape_are_refused_as_by_the_model():
    with pytest.raises(SchemaError, match=r"built for observations \[B, 3\], got \[3\]"):
        numpy_forward(DQN(3, 2, [4]))(np.zeros(3, dtype=np.float32))


class Doubled(DQN):
    def q(self, x):
        return 2 * super().q(x)


def with_hook():
    net = nn.Sequential(nn.Linear(3, 2))
    net.register_forward_hook(lambda module, inputs, output: 2 * output)
    return net


UNKNOWN = {
    "layer norm of two axes": lambda: nn.Sequential(nn.Unflatten(1, (2, 2)), nn.LayerNorm((2, 2))),
    "gelu": lambda: DQN(3, 2, [4], activation="gelu"),
    "rainbow's gelu": lambda: RainbowDQN(3, 2, [4], activation="gelu"),
    "images": lambda: DQN((1, 4, 4), 2, [4], encoder_kernel_size=[2], encoder_stride=[2]),
    "convolutions": lambda: ConvEncoder((1, 4, 4), [4], kernel_size=[2], stride=[2]),
    "own q": lambda: Doubled(3, 2, [4]),
    "dropout": lambda: nn.Sequential(nn.Linear(3, 2), nn.Dropout()),
    "flatten rows": lambda: nn.Sequential(nn.Flatten(0), nn.Linear(3, 2)),
    "parametrised": lambda: nn.utils.parametrizations.orthogonal(nn.Linear(3, 2)),
    "bfloat16": lambda: nn.Linear(3, 2).to(torch.bfloat16),
    "meta": lambda: nn.Linear(3, 2, device="meta"),
    "two dtypes": lambda: nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2).double()),
    "no parameters": nn.ReLU,
    "hook": with_hook,
}


def test_what_it_cannot_follow_gets_none():
    assert [name for name, make in UNKNOWN.items() if numpy_forward(make()) is not None] == []


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
        "rainbow's gelu": RainbowDQN(3, 2, [4], activation="gelu", noise=False),
        "layer norm without weights": nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2, elementwise_affine=False)),
        "double": nn.Linear(2, 2).double(),
        "frozen": nn.Linear(2, 2).requires_grad_(False),
        "convolution": nn.Conv2d(1, 1, 1),
        "hook": hooked,
    }

    assert [name for name, module in unknown.items() if can_differentiate(module)] == []
