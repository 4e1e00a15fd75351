"""Noisy layers and Rainbow's network: against explicit weights, row by row, and by hand against autograd."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.errors import ConfigError, SchemaError
from ding_like.model.flat_params import FlatParams
from ding_like.model.layers import DiscreteHead, DuelingHead, NoisyLinear, factor_noise
from ding_like.model.numpy_networks import NumpyGrad, can_differentiate, numpy_forward
from ding_like.model.q_networks import RainbowDQN

PARTS = ("dueling", "distributional", "noise")
FULL = dict.fromkeys(PARTS, True)
FORMS = [FULL, *(dict(FULL, **{part: False}) for part in PARTS)]  # all parts, and each of them alone switched off


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return factor_noise(torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype))


def make_model(**settings: Any) -> RainbowDQN:
    torch.manual_seed(0)
    return RainbowDQN(3, 4, [8, 6], **{"n_atom": 5, **settings})


def output(model: RainbowDQN, x: torch.Tensor, noise: torch.Tensor | None) -> torch.Tensor:
    """Return what numpy gives of a model: logits, or the values of one without distributions."""
    return model.logits(x, noise) if model.distributional else model.q(x, noise)


def test_the_function_of_noise_keeps_the_sign_and_takes_the_root():
    assert factor_noise(torch.tensor([4.0, -9.0, 0.0, 0.25])).tolist() == [2.0, -3.0, 0.0, 0.5]


def test_a_layer_begins_as_the_paper_says():
    layer = NoisyLinear(16, 500).requires_grad_(False)

    assert layer.weight_mu.abs().max() <= 0.25 and layer.weight_mu.std() == pytest.approx(0.5 / math.sqrt(12), rel=0.05)
    assert layer.bias_mu.abs().max() <= 0.25 and layer.bias_mu.std() > 0.1
    assert (layer.weight_sigma == 0.125).all() and (layer.bias_sigma == 0.125).all()


def test_a_layer_equals_explicit_weights_row_by_row():
    torch.manual_seed(0)
    layer, x = NoisyLinear(3, 2).double().requires_grad_(False), torch.randn(5, 3, dtype=torch.float64)
    eps = torch.randn(5, 5, dtype=torch.float64)

    y = layer(x, factor_noise(eps))

    f = lambda e: math.copysign(math.sqrt(abs(e)), e)  # noqa: E731
    for row in range(5):
        eps_in, eps_out = eps[row, :3].tolist(), eps[row, 3:].tolist()
        for j in range(2):
            total = float(layer.bias_mu[j]) + float(layer.bias_sigma[j]) * f(eps_out[j])
            for i in range(3):
                weight = float(layer.weight_mu[j, i]) + float(layer.weight_sigma[j, i]) * f(eps_out[j]) * f(eps_in[i])
                total += weight * float(x[row, i])
            assert float(y[row, j]) == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize("form", [FORMS[0], FORMS[3]])
def test_rows_with_noise_of_their_own_are_what_each_is_alone(form):
    model, x = make_model(**form), torch.randn(6, 3)
    noise = draw(6, model.noise_size)

    together = model.q(x, noise)
    alone = torch.cat([model.q(x[row : row + 1], noise[row]) for row in range(6)])

    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-6)
    repeated = model.q(x[:1].expand(6, 3), noise)
    assert (len(repeated.unique(dim=0)) == 6) == form["noise"], "each row has noise of its own"


@pytest.mark.parametrize("form", FORMS[:2])
def test_no_noise_and_noise_of_zero_are_the_means(form):
    model, x = make_model(**form), torch.randn(6, 3)
    before = model.q(x)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("sigma"):
                parameter.mul_(100.0)

    assert torch.equal(model.q(x), before)
    torch.testing.assert_close(model.q(x, torch.zeros(model.noise_size)), before)
    assert torch.equal(model.under(None).q(x), before) and torch.equal(model(x)["logit"], before)


@pytest.mark.parametrize(
    ("form", "noise", "dtype"),
    [
        *((FULL, noise, torch.float32) for noise in ("none", "one", "rows")),
        *((form, "rows", torch.float64) for form in FORMS[1:]),
    ],
)
def test_numpy_gives_what_torch_gives(form, noise, dtype):
    model, x = make_model(**form).to(dtype), torch.randn(6, 3, dtype=dtype)
    given = {"none": None, "one": draw(model.noise_size, dtype=dtype), "rows": draw(6, model.noise_size, dtype=dtype)}
    run = numpy_forward(model)
    assert run is not None

    ours = run(x.numpy(), None if given[noise] is None else given[noise].numpy())

    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    np.testing.assert_allclose(ours, output(model, x, given[noise]).detach().numpy(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("form", "layers", "activation", "noisy"),
    [
        (FULL, 0, "relu", True),
        (FULL, 2, "tanh", True),
        (FULL, 1, "relu", False),
        *((form, 1, "relu", True) for form in FORMS[1:]),
    ],
)
def test_gradients_by_hand_equal_autograds(form, layers, activation, noisy):
    model = make_model(**form, head_layer_num=layers, head_hidden_size=7, activation=activation)
    params, x = FlatParams(model), torch.randn(9, 3)
    noise = draw(model.noise_size) if noisy else None
    wanted = output(model, x, noise)
    grad = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(1))
    params.zero_grad()
    wanted.backward(grad)
    expected = params.grad_vector.clone()

    by_hand = NumpyGrad(model, params)
    params.grad_vector.fill_(7.0)
    ours = by_hand.forward(x.numpy(), None if noise is None else noise.numpy())
    by_hand.backward(grad.numpy().copy())

    np.testing.assert_allclose(ours, wanted.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(params.grad_vector.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_a_heads_gradient_equals_finite_differences():
    torch.manual_seed(0)
    head = DuelingHead(3, 2, num_points=2, hidden_size=2, linear=NoisyLinear).double()
    x, noise = torch.randn(2, 3, dtype=torch.float64), draw(2, head.noise_size, dtype=torch.float64)
    names = list(dict(head.named_parameters()))

    def run(*values: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(head, dict(zip(names, values, strict=True)), (x, noise), strict=True)

    assert torch.autograd.gradcheck(run, tuple(head.parameters()))


@pytest.mark.parametrize("shape", [(3,), (5, 92)])
def test_noise_of_another_shape_is_one_error(shape):
    model, x = make_model(), torch.zeros(6, 3)
    noise = torch.zeros(shape)
    by_hand, run = NumpyGrad(model, FlatParams(model)), numpy_forward(model)

    for call in (lambda: model.q(x, noise), lambda: run(x.numpy(), noise.numpy())):
        with pytest.raises(SchemaError, match=rf"\({model.noise_size},\) for all rows, or \(6, {model.noise_size}\)"):
            call()
    with pytest.raises(SchemaError, match="for all rows: draw"):
        by_hand.forward(x.numpy(), noise.numpy())


def test_layers_that_numpy_does_not_know_are_left_to_torch():
    for model in (make_model(norm_type="LN"), make_model(activation="gelu", noise=False)):
        assert numpy_forward(model) is None and not can_differentiate(model)


def test_a_head_that_cannot_be_is_one_error():
    with pytest.raises(ConfigError, match="layer_num is -1"):
        DiscreteHead(3, 2, layer_num=-1, linear=NoisyLinear)
    with pytest.raises(ConfigError, match="one number of discrete actions"):
        RainbowDQN(3, [2, 2])
