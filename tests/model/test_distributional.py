"""The networks of C51 and QR-DQN, and what numpy makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ding_like.errors import ConfigError
from ding_like.model import DuelingHead, numpy_forward
from ding_like.model.flat_params import FlatParams
from ding_like.model.numpy_grad import NumpyGrad
from ding_like.model.q_networks import C51DQN, QRDQN
from ding_like.utils.registries import MODEL_REGISTRY

OBS, ACTIONS, ROWS = 3, 4, 5
MAKERS: dict[str, Any] = {
    "c51dqn": lambda **settings: C51DQN(OBS, ACTIONS, [8, 6], v_min=-1.0, v_max=3.0, n_atom=7, **settings),
    "qrdqn": lambda **settings: QRDQN(OBS, ACTIONS, [8, 6], num_quantiles=7, **settings),
}


def observations(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(ROWS, OBS)).astype(np.float32)


def test_dueling_distributions_are_value_plus_centred_advantage_point_by_point() -> None:
    head, x = DuelingHead(3, ACTIONS, num_points=2), torch.randn(ROWS, 3)

    points, value, advantage = (part(x).detach() for part in (head, head.value, head.advantage))

    for row in range(ROWS):
        for point in range(2):
            ours = advantage[row, :, point].tolist()
            expected = [float(value[row, 0, point]) + a - sum(ours) / ACTIONS for a in ours]
            assert points[row, :, point].tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("dueling", "head_layer_num"), [(True, 1), (False, 0)])
@pytest.mark.parametrize("name", MAKERS)
def test_numpy_gives_and_differentiates_what_torch_does(name: str, dueling: bool, head_layer_num: int) -> None:
    torch.manual_seed(0)
    model = MAKERS[name](dueling=dueling, head_layer_num=head_layer_num)
    params, x = FlatParams(model), observations()
    grad = np.random.default_rng(1).normal(size=(ROWS, ACTIONS, 7)).astype(np.float32)
    points = model.points(torch.from_numpy(x))
    params.zero_grad()
    points.backward(torch.from_numpy(grad))
    expected = params.grad_vector.clone()

    by_hand = NumpyGrad(model, params)
    params.grad_vector.fill_(7.0)
    output = by_hand.forward(x)
    by_hand.backward(grad.copy())

    np.testing.assert_allclose(output, points.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(params.grad_vector.numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)
    forward = numpy_forward(model)
    assert forward is not None
    np.testing.assert_allclose(forward(x), points.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_what_follows_the_network_is_applied_to_its_output() -> None:
    model, x = MAKERS["qrdqn"](), observations()
    plain, mean = numpy_forward(model), numpy_forward(model, then=lambda points: points.mean(-1))
    assert plain is not None and mean is not None

    np.testing.assert_array_equal(mean(x), plain(x).mean(-1))


def test_c51_says_probabilities_and_what_is_expected() -> None:
    model, x = MAKERS["c51dqn"](), torch.from_numpy(observations())

    output = model(x)

    torch.testing.assert_close(output["distribution"], model.logits(x).softmax(-1))
    support = torch.linspace(-1.0, 3.0, 7)
    torch.testing.assert_close(output["logit"], (output["distribution"] * support).sum(-1))


def test_qrdqn_says_quantiles_their_fractions_and_what_is_expected() -> None:
    model, x = QRDQN(OBS, ACTIONS, [8], num_quantiles=4), torch.from_numpy(observations())

    output = model(x)

    assert torch.equal(output["q"], model.quantiles(x)) and output["q"].shape == (ROWS, ACTIONS, 4)
    torch.testing.assert_close(output["logit"], output["q"].mean(-1))
    assert output["tau"].tolist() == [0.125, 0.375, 0.625, 0.875]


@pytest.mark.parametrize(("name", "key", "default"), [("c51dqn", "n_atom", 51), ("qrdqn", "num_quantiles", 32)])
def test_names_and_defaults_are_di_engines(name: str, key: str, default: int) -> None:
    model = MODEL_REGISTRY.build(name, obs_shape=OBS, action_shape=ACTIONS)

    assert getattr(model, key) == default
    assert name != "c51dqn" or (model.v_min, model.v_max) == (-10.0, 10.0)


@pytest.mark.parametrize("name", MAKERS)
def test_several_actions_at_a_time_are_refused_by_the_name_of_the_model(name: str) -> None:
    with pytest.raises(ConfigError, match=f"the '{name}' model needs one number of discrete actions"):
        MODEL_REGISTRY.build(name, obs_shape=OBS, action_shape=[2, 3])
