"""The Q network and its heads."""

import pytest
import torch
from torch import nn

from ding_like.errors import ConfigError, SchemaError
from ding_like.model import DQN, DiscreteHead, DuelingHead, init_orthogonal


def linear_shapes(module):
    return [(layer.in_features, layer.out_features) for layer in module.modules() if isinstance(layer, nn.Linear)]


def test_dueling_is_value_plus_centred_advantage():
    head = DuelingHead(3, 4)
    x = torch.randn(5, 3)

    q = head(x)

    for row in range(5):
        value = head.value(x)[row].item()
        advantage = head.advantage(x)[row].tolist()
        expected = [value + a - sum(advantage) / 4 for a in advantage]
        assert q[row].tolist() == pytest.approx(expected, abs=1e-6)


def test_head_has_hidden_layers_of_the_given_width():
    assert linear_shapes(DiscreteHead(3, 2, hidden_size=8, layer_num=2)) == [(3, 8), (8, 8), (8, 2)]


def test_head_refuses_a_negative_number_of_layers():
    with pytest.raises(ConfigError, match="layer_num is -1"):
        DiscreteHead(3, 2, layer_num=-1)


def test_default_network_for_vectors_has_two_streams_as_wide_as_the_encoder_output():
    streams = [(64, 64), (64, 1), (64, 64), (64, 2)]

    assert linear_shapes(DQN(4, 2)) == [(4, 128), (128, 128), (128, 64), *streams]


def test_without_dueling_and_head_layers_it_is_a_plain_mlp():
    model = DQN([4], 2, [128, 128, 64], dueling=False, head_layer_num=0)

    assert linear_shapes(model) == [(4, 128), (128, 128), (128, 64), (64, 2)]
    assert [type(layer) for layer in model.modules() if not list(layer.children())] == [nn.Linear, nn.ReLU] * 3 + [
        nn.Linear
    ]


def test_forward_gives_the_q_values_under_the_name_logit():
    model = DQN(4, 2)
    x = torch.randn(3, 4)

    assert list(model(x)) == ["logit"]
    assert torch.equal(model(x)["logit"], model.q(x))
    assert model.q(x).shape == (3, 2)


def test_settings_reach_encoder_and_head():
    model = DQN(4, 2, [8], activation="tanh", norm_type="LN", head_hidden_size=5)

    kinds = {type(layer) for layer in model.head.modules()} & {nn.ReLU, nn.Tanh, nn.LayerNorm}
    assert kinds == {nn.Tanh, nn.LayerNorm}
    assert linear_shapes(model.head.value) == [(8, 5), (5, 1)]


def test_several_action_axes_are_refused():
    with pytest.raises(ConfigError, match=r"action_shape is \(2, 3\)"):
        DQN(4, [2, 3])


def test_a_single_observation_is_refused():
    with pytest.raises(SchemaError, match="give a batch"):
        DQN(4, 2).q(torch.zeros(4))


def test_orthogonal_initialisation_covers_convolutions_and_layers_without_bias():
    conv, linear = nn.Conv2d(2, 3, 3), nn.Linear(6, 3, bias=False)

    init_orthogonal(nn.ModuleList([conv, linear]), gain=2.0)

    for rows in (conv.weight.flatten(1), linear.weight):
        torch.testing.assert_close(rows @ rows.T, 4 * torch.eye(3), atol=1e-5, rtol=0)
    assert not conv.bias.any()
