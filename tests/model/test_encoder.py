"""Encoders: what they compute, what they accept, what they refuse.

Recurrent layers over sequences equal themselves step by step, and their state follows the lane.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ding_like.errors import ConfigError, SchemaError
from ding_like.model import ConvEncoder, FCEncoder, build_encoder
from ding_like.model.encoder import MixedEncoder, ObsFeatures
from ding_like.model.layers import LayerNormLSTM, RecurrentCore, build_mlp, over_time
from ding_like.utils import log


def small_conv(obs_shape=(3, 10, 12), sizes=(4, 8, 16), kernels=(3, 3), strides=(2, 1)):
    return ConvEncoder(obs_shape, list(sizes), kernel_size=list(kernels), stride=list(strides))


def test_fc_encoder_is_a_chain_of_linear_layers_and_activations():
    encoder = FCEncoder(4, [8, 6], activation="tanh")
    x = torch.randn(5, 4)

    features = encoder(x)

    first, second = (layer for layer in encoder.modules() if isinstance(layer, nn.Linear))
    expected = torch.tanh(torch.tanh(x @ first.weight.T + first.bias) @ second.weight.T + second.bias)
    torch.testing.assert_close(features, expected)
    assert encoder.output_size == 6


def test_fc_encoder_flattens_shapes_of_several_axes():
    assert FCEncoder([2, 3], [8])(torch.zeros(5, 2, 3)).shape == (5, 8)


def test_fc_encoder_casts_observations_of_any_dtype():
    encoder = FCEncoder(3, [4])
    x = torch.tensor([[0, 1, 1]])

    for dtype in (torch.float64, torch.int64, torch.uint8, torch.bool):
        torch.testing.assert_close(encoder(x.to(dtype)), encoder(x.float()))


def test_layer_norm_stands_between_linear_and_activation():
    encoder = FCEncoder(3, [4, 4], norm_type="LN")

    kinds = [type(layer) for layer in encoder.main]
    assert kinds == [nn.Linear, nn.LayerNorm, nn.ReLU] * 2


def test_conv_encoder_defaults_to_the_nature_network():
    encoder = ConvEncoder((4, 84, 84))

    # Mnih et al. 2015: 84 -> 20 -> 9 -> 7 pixels, so 64 * 7 * 7 = 3136 features enter the dense layer.
    shapes = [tuple(p.shape) for p in encoder.parameters() if p.dim() > 1]
    assert shapes == [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3), (512, 3136)]
    assert encoder(torch.zeros(2, 4, 84, 84, dtype=torch.uint8)).shape == (2, encoder.output_size)


def test_conv_encoder_scales_uint8_pixels_to_one_and_leaves_floats():
    encoder = small_conv()
    pixels = torch.randint(0, 256, (2, 3, 10, 12), dtype=torch.uint8)

    torch.testing.assert_close(encoder(pixels), encoder(pixels.float() / 255))


@pytest.mark.parametrize("side", [1, 3, 4, 7, 14, 15, 35, 36])
def test_the_default_convolutions_fit_images_of_any_size(side):
    encoder = ConvEncoder((3, side, side + 2))

    assert encoder(torch.zeros(2, 3, side, side + 2)).shape == (2, 512)


def test_images_with_channels_in_last_place_are_encoded_as_those_with_channels_first():
    first, last = ConvEncoder((3, 7, 7)), ConvEncoder((7, 7, 3))
    last.load_state_dict(first.state_dict())
    pixels = torch.randint(0, 256, (2, 3, 7, 7), dtype=torch.uint8)

    torch.testing.assert_close(last(pixels.permute(0, 2, 3, 1)), first(pixels))


def test_the_choice_for_small_images_is_logged(caplog, monkeypatch):
    monkeypatch.setattr(log, "_warned", set())
    caplog.set_level("INFO", logger="ding_like")

    for shape in ((4, 84, 84), (7, 7, 3), (7, 7, 3)):
        ConvEncoder(shape)

    assert [record.message for record in caplog.records] == [
        "encoder     images (H, W, C) = (7, 7, 3): convolutions with kernel_size [2, 2, 2] and stride [1, 1, 1]"
    ]


def test_the_shape_of_the_observation_chooses_the_encoder():
    kinds = [type(build_encoder(obs_shape)) for obs_shape in (4, [4], (2, 3), (4, 84, 84))]

    assert kinds == [FCEncoder, FCEncoder, FCEncoder, ConvEncoder]


CATEGORIES = {"one_hot": [2, 3]}


def test_whole_numbers_become_one_hot_vectors_side_by_side():
    features = ObsFeatures(CATEGORIES)

    assert features.output_size == 5
    assert features(torch.tensor([[1, 0], [0, 2]])).tolist() == [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]


def test_a_number_outside_its_range_is_all_zeros_and_touches_no_other():
    assert ObsFeatures(CATEGORIES)(torch.tensor([[2, -1]])).tolist() == [[0, 0, 0, 0, 0]]


def test_parts_of_a_dict_stand_in_the_order_of_the_shape():
    features = ObsFeatures({"b": [2], "a.x": CATEGORIES, "c": [], "d": [2, 2]})
    x = {
        "a.x": torch.tensor([[1, 2]]),
        "b": torch.tensor([[7, 8]], dtype=torch.uint8),
        "c": torch.tensor([9.0]),
        "d": torch.tensor([[[1, 2], [3, 4]]]),
    }

    assert features(x).tolist() == [[7, 8, 0, 1, 0, 0, 1, 9, 1, 2, 3, 4]]


def test_linear_layers_follow_a_dict_without_images():
    encoder = build_encoder({"a": 2, "b": CATEGORIES}, [8, 6])
    x = {"a": torch.randn(4, 2), "b": torch.tensor([[0, 1]] * 4)}

    assert isinstance(encoder, MixedEncoder) and encoder.output_size == 6
    torch.testing.assert_close(encoder(x), encoder.main(encoder.features(x)))
    assert encoder(x).shape == (4, 6)


def test_images_of_a_dict_are_encoded_and_numbers_stand_beside_them():
    encoder = build_encoder({"camera": [3, 10, 12], "speed": 2}, [4, 8, 16], kernel_size=[3, 3], stride=[2, 1])
    x = {"camera": torch.randint(255, (5, 3, 10, 12), dtype=torch.uint8), "speed": torch.randn(5, 2)}

    features = encoder(x)

    assert features.shape == (5, 16 + 2) and encoder.output_size == 18
    torch.testing.assert_close(features[:, 16:], x["speed"])
    torch.testing.assert_close(features[:, :16], encoder.features.parts[0](x["camera"]))


@pytest.mark.parametrize("cell_type", ["lstm", "norm_lstm", "gru"])
def test_a_sequence_at_once_equals_its_steps_one_by_one(cell_type: str) -> None:
    torch.manual_seed(0)
    core = RecurrentCore(3, 5, cell_type=cell_type)
    x = torch.randn(4, 7, 3)
    state = {name: torch.randn(4, 5) for name in core.state_names}

    whole, behind = core(x, state)

    for t in range(7):
        y, state = core(x[:, t : t + 1], state)
        torch.testing.assert_close(y[:, 0], whole[:, t])
    for name in core.state_names:
        torch.testing.assert_close(state[name], behind[name])


def test_normalised_gates_are_those_of_the_paper() -> None:
    torch.manual_seed(0)
    cell = LayerNormLSTM(2, 3)
    for parameter in cell.parameters():
        torch.nn.init.normal_(parameter)
    x, h, c = torch.randn(4, 1, 2), torch.randn(3), torch.randn(3)

    steps, (last_h, last_c) = cell(x, (h.view(1, 1, 3), c.view(1, 1, 3)))

    def normalised(value: torch.Tensor, layer: torch.nn.LayerNorm) -> torch.Tensor:
        spread = (value - value.mean()).square().mean()
        return (value - value.mean()) / (spread + 1e-5).sqrt() * layer.weight + layer.bias

    for t in range(4):
        of_input = normalised(cell.input.weight @ x[t, 0], cell.input_norm)
        gates = of_input + normalised(cell.hidden.weight @ h, cell.hidden_norm)
        i, f, o = (1 / (1 + torch.exp(-gates[k : k + 3])) for k in (0, 3, 6))
        c = f * c + i * gates[9:].tanh()
        h = o * c.tanh()
        torch.testing.assert_close(steps[t, 0], h)
    torch.testing.assert_close(last_h[0, 0], h)
    torch.testing.assert_close(last_c[0, 0], c)


def test_the_state_before_an_episode_is_zero() -> None:
    core = RecurrentCore(3, 5)

    assert {name: value.tolist() for name, value in core.initial_state.items()} == {"h": [0.0] * 5, "c": [0.0] * 5}


def test_a_module_of_single_steps_runs_over_sequences_and_dicts_of_them() -> None:
    torch.manual_seed(0)
    layer = build_mlp(3, [4])
    x = torch.randn(2, 6, 3)

    # Not to the last bit: on some processors a product of other shape is summed in another order.
    torch.testing.assert_close(over_time(layer, x), torch.stack([layer(x[:, t]) for t in range(6)], dim=1))

    class Both(torch.nn.Module):
        def forward(self, parts: dict[str, torch.Tensor]) -> torch.Tensor:
            return layer(parts["a"] + parts["b"])

    assert torch.equal(over_time(Both(), {"a": x, "b": x}), over_time(layer, x + x))


REFUSED = [
    (lambda: FCEncoder(4, []), "is empty; give at least one"),
    (lambda: FCEncoder(4, [8, 0]), r"above 0, got \[8, 0\]"),
    (lambda: FCEncoder(4, [8.5]), r"whole numbers above 0, got \[8.5\]"),
    (lambda: FCEncoder(4, [8], activation="swish"), "'swish'; expected one of 'relu', 'tanh'"),
    (lambda: FCEncoder(4, [8], norm_type="BN"), "'BN'; expected None or 'LN'"),
    (lambda: build_encoder(()), "one-hot encode it"),
    (lambda: build_encoder({}), "empty dict"),
    (lambda: build_encoder(4, kernel_size=[3]), "are for images"),
    (lambda: build_encoder({"a": 3}, kernel_size=[3]), "are for images"),
    (lambda: ConvEncoder([4]), r"needs obs_shape \(C, H, W\), got \(4,\); use FCEncoder"),
    *(
        (lambda lists=lists: small_conv((3, 10, 10), *lists), "need as many strides")
        for lists in (([4, 4], [3], [1, 1]), ([4], [3, 3], [1, 1]), ([4, 4, 4], [3], [1]))
    ),
    (
        lambda: small_conv((1, 10, 10), [8, 8, 8], [8, 4], [2, 1]),
        "kernel of 4 does not fit into the 2 x 2 image that convolution 1 gets",
    ),
    (
        lambda: small_conv((3, 7, 7), [8] * 5, [8, 4, 3, 3], [4, 2, 1, 1]),
        r"These fit: kernel_size=\[2, 2, 2, 1\], stride=\[1, 1, 1, 1\]",
    ),
    (lambda: RecurrentCore(3, 4, cell_type="rnn"), "expected"),
    (lambda: RecurrentCore(3, 0, cell_type="gru"), "expected"),
    *(
        (lambda shape=shape: FCEncoder(4, [8])(torch.zeros(shape)), r"built for observations \[B, 4\], got \[")
        for shape in ((4,), (5, 3), (5, 4, 1))
    ),
    (lambda: build_encoder({"a": 3})(torch.zeros(2, 3)), r"a dict with \['a'\] as observation, got one tensor"),
    (lambda: build_encoder({"a": 3})({"b": torch.zeros(2, 3)}), r"with \['a'\] as .*, got a dict with \['b'\]"),
    (lambda: build_encoder({"a": 3})({"a": torch.zeros(2, 4)}), r"\[B, 3\], got \[2, 4\]"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises((ConfigError, SchemaError), match=message):
        call()


def test_sizes_that_an_error_names_fit():
    small_conv((3, 7, 7), [8] * 5, [2, 2, 2, 1], [1, 1, 1, 1])


def test_outcomes_of_a_team_are_no_features() -> None:
    shapes = {"agents": [2, 3], "state": 4, "alive": 2, "ended": 2, "rewards": 2}
    features = ObsFeatures(shapes)
    obs = {name: torch.zeros(5, *(shape if isinstance(shape, list) else [shape])) for name, shape in shapes.items()}

    assert features.output_size == 2 * 3 + 4
    told = {**obs, "alive": obs["alive"] + 1, "ended": obs["ended"] + 1, "rewards": obs["rewards"] + 9}
    assert torch.equal(features(obs), features(told))
    assert ObsFeatures({"alive": 2, "rewards": 3}).output_size == 5, "names of any other env's own"
