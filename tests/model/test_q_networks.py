"""Networks of action values.

Noisy layers and Rainbow's network: against explicit weights, row by row, and by hand against autograd.
"""

from __future__ import annotations

import copy
import math
from functools import partial
from math import cos, pi
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ding_like.errors import ConfigError, SchemaError
from ding_like.model import DQN, init_orthogonal
from ding_like.model.flat_params import FlatParams
from ding_like.model.layers import DiscreteHead, DuelingHead, NoisyLinear, factor_noise
from ding_like.model.numpy_networks import NumpyGrad, NumpyIQN, NumpyProposal, is_plain_iqn, numpy_forward
from ding_like.model.q_networks import C51DQN, DRQN, FQF, IQN, QRDQN, CosineEmbedding, FractionProposal, RainbowDQN
from ding_like.utils.registries import MODEL_REGISTRY


def linear_shapes(module):
    return [(layer.in_features, layer.out_features) for layer in module.modules() if isinstance(layer, nn.Linear)]


@pytest.mark.parametrize("num_points", [None, 2])
def test_dueling_is_value_plus_centred_advantage_point_by_point(num_points):
    head, x = DuelingHead(3, 4, num_points=num_points), torch.randn(5, 3)

    q, value, advantage = (part(x).detach().view(5, -1, num_points or 1) for part in (head, head.value, head.advantage))

    for row, point in np.ndindex(5, num_points or 1):
        ours = advantage[row, :, point].tolist()
        expected = [float(value[row, 0, point]) + a - sum(ours) / 4 for a in ours]
        assert q[row, :, point].tolist() == pytest.approx(expected, abs=1e-6)


def test_head_has_hidden_layers_of_the_given_width():
    assert linear_shapes(DiscreteHead(3, 2, hidden_size=8, layer_num=2)) == [(3, 8), (8, 8), (8, 2)]


def test_default_network_for_vectors_has_two_streams_as_wide_as_the_encoder_output():
    streams = [(64, 64), (64, 1), (64, 64), (64, 2)]

    assert linear_shapes(DQN(4, 2)) == [(4, 128), (128, 128), (128, 64), *streams]


@pytest.mark.parametrize(
    ("network", "is_dueling"), [(DQN, True), (C51DQN, False), (QRDQN, False), (IQN, False), (RainbowDQN, True)]
)
def test_by_default_the_head_of_a_network_is_that_of_its_paper(network: Any, is_dueling: bool) -> None:
    plain, same, other = (
        [name for name, _ in network([4], 2, **given).named_parameters()]
        for given in ({}, {"dueling": is_dueling}, {"dueling": not is_dueling})
    )

    assert plain == same != other


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


def test_orthogonal_initialisation_covers_convolutions_and_layers_without_bias():
    conv, linear = nn.Conv2d(2, 3, 3), nn.Linear(6, 3, bias=False)

    init_orthogonal(nn.ModuleList([conv, linear]), gain=2.0)

    for rows in (conv.weight.flatten(1), linear.weight):
        torch.testing.assert_close(rows @ rows.T, 4 * torch.eye(3), atol=1e-5, rtol=0)
    assert not conv.bias.any()


OBS, ACTIONS, ROWS = 3, 4, 5
MAKERS: dict[str, Any] = {
    "c51dqn": lambda **settings: C51DQN(OBS, ACTIONS, [8, 6], v_min=-1.0, v_max=3.0, n_atom=7, **settings),
    "qrdqn": lambda **settings: QRDQN(OBS, ACTIONS, [8, 6], num_quantiles=7, **settings),
}


def observations(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(ROWS, OBS)).astype(np.float32)


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


SMALL: dict[str, Any] = dict(encoder_hidden_size_list=[6])


@pytest.mark.parametrize(
    "settings",
    [
        {},
        dict(dueling=False, head_layer_num=0),
        dict(lstm_type="pytorch"),
        dict(lstm_type="gru", res_link=True),
        dict(lstm_hidden_size=5),
    ],
    ids=["dueling", "plain", "pytorch", "gru with link", "own width"],
)
def test_a_sequence_at_once_equals_its_steps_one_by_one(settings: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = DRQN(3, 2, **SMALL, **settings)
    obs = torch.randn(4, 7, 3)
    state = {name: torch.randn(4, len(value)) for name, value in model.initial_state.items()}

    values, behind = model.run(obs, state)

    assert values.shape == (4, 7, 2) and torch.equal(model(obs, state)["logit"], values)
    for t in range(7):
        one, state = model.run(obs[:, t : t + 1], state)
        torch.testing.assert_close(one[:, 0], values[:, t])
    for name, column in behind.items():
        torch.testing.assert_close(state[name], column)


def test_observations_may_be_dicts_with_images() -> None:
    shape = {"board": [1, 8, 8], "speed": 2}
    model = DRQN(shape, 3, [4, 8], encoder_kernel_size=[3], encoder_stride=[1])
    state = {name: torch.from_numpy(value).expand(2, -1) for name, value in model.initial_state.items()}

    values, _ = model.run({"board": torch.rand(2, 5, 1, 8, 8), "speed": torch.rand(2, 5, 2)}, state)

    assert values.shape == (2, 5, 3)


def test_the_link_hands_the_recurrent_layers_input_on() -> None:
    torch.manual_seed(0)
    model = DRQN(3, 2, **SMALL, res_link=True)
    for parameter in model.core.parameters():
        torch.nn.init.zeros_(parameter)  # an LSTM of zeros gives zeros
    obs, state = torch.randn(2, 4, 3), {name: torch.zeros(2, 6) for name in ("h", "c")}

    values, _ = model.run(obs, state)

    torch.testing.assert_close(values.flatten(0, 1), model.head(model.encoder(obs.flatten(0, 1))))


PARTS = ("dueling", "distributional", "noise")
FULL = dict.fromkeys(PARTS, True)
FORMS = [FULL, *(dict(FULL, **{part: False}) for part in PARTS)]  # all parts, and each of them alone switched off


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return factor_noise(torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype))


def make_model(**settings: Any) -> RainbowDQN:
    torch.manual_seed(0)
    return RainbowDQN(3, 4, [8, 6], **{"n_atom": 5, **settings})


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


IQN_OBS, IQN_ACTIONS, IQN_ROWS = 3, 4, 6


def make_iqn(kind: type[IQN] | type[FQF] = IQN, **settings: object) -> IQN | FQF:
    torch.manual_seed(0)
    defaults = dict(encoder_hidden_size_list=[8, 8], num_quantiles=5, quantile_embedding_size=6, head_layer_num=0)
    return kind(IQN_OBS, IQN_ACTIONS, **{**defaults, **settings})  # type: ignore[arg-type]


def draw_fractions(number: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(IQN_ROWS, IQN_OBS, generator=generator), torch.rand(IQN_ROWS, number, generator=generator)


def test_the_cosine_embedding_equals_a_slow_sum() -> None:
    torch.manual_seed(0)
    embedding = CosineEmbedding(6, 3).double()
    fractions = torch.rand(2, 4, dtype=torch.float64)

    embedded = embedding(fractions)

    weight, bias = embedding.linear.weight.tolist(), embedding.linear.bias.tolist()
    for row, n, j in np.ndindex(2, 4, 3):
        total = sum(cos(pi * i * float(fractions[row, n])) * weight[j][i] for i in range(6)) + bias[j]
        assert float(embedded[row, n, j].detach()) == pytest.approx(max(total, 0.0), abs=1e-12)


def test_a_quantile_is_the_head_of_features_times_embedding() -> None:
    model, (obs, fractions) = make_iqn(), draw_fractions()

    values = model.quantiles(obs, fractions)

    assert values.shape == (IQN_ROWS, IQN_ACTIONS, 7)
    for row, n in np.ndindex(IQN_ROWS, 7):
        mixed = model.encoder(obs[row : row + 1])[0] * model.embedding(fractions[row : row + 1, n : n + 1])[0, 0]
        torch.testing.assert_close(values[row, :, n], model.head(mixed[None])[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [IQN, FQF])
def test_forward_gives_expected_returns_quantiles_and_fractions(kind: type[IQN] | type[FQF]) -> None:
    model, (obs, _) = make_iqn(kind), draw_fractions()

    output = model(obs)

    assert output["q"].shape == (IQN_ROWS, IQN_ACTIONS, 5)
    torch.testing.assert_close(output["logit"], model.q(obs))
    assert output["quantiles"].shape == ((1, 5) if kind is IQN else (IQN_ROWS, 5))


# ---- proposals


def test_proposals_divide_the_unit_interval() -> None:
    torch.manual_seed(0)
    proposal = FractionProposal(8, 5)
    torch.nn.init.normal_(proposal.linear.weight)

    parts = proposal(torch.randn(IQN_ROWS, 8))

    widths = parts.widths
    torch.testing.assert_close(widths.sum(-1), torch.ones(IQN_ROWS))
    torch.testing.assert_close(parts.bounds, widths.cumsum(-1)[:, :-1])
    edges = torch.cat([torch.zeros(IQN_ROWS, 1), parts.bounds, torch.ones(IQN_ROWS, 1)], dim=1)
    torch.testing.assert_close(parts.midpoints, 0.5 * (edges[:, 1:] + edges[:, :-1]))
    torch.testing.assert_close(parts.entropy, torch.distributions.Categorical(probs=widths).entropy())


def test_the_quantiles_do_not_train_the_proposal_nor_it_the_encoder() -> None:
    model, (obs, _) = make_iqn(FQF), draw_fractions()

    values, fractions = model.predict(obs)
    values.square().sum().backward()

    assert model.proposal.linear.weight.grad is None
    assert not any(part.requires_grad for part in fractions)
    assert model.values.encoder.main[0].weight.grad is not None


# ---- numpy


SETTINGS = [dict(), dict(head_layer_num=1, activation="tanh"), dict(num_quantiles=1, dueling=True, head_layer_num=1)]


@pytest.mark.parametrize(("kind", "settings"), [*((IQN, settings) for settings in SETTINGS), (FQF, SETTINGS[2])])
def test_numpy_gives_the_expected_returns_that_torch_gives(
    kind: type[IQN] | type[FQF], settings: dict[str, object]
) -> None:
    model, (obs, _) = make_iqn(kind, **settings), draw_fractions()
    if isinstance(model, FQF):
        torch.nn.init.normal_(model.proposal.linear.weight)
    forward = numpy_forward(model)
    assert forward is not None

    for _ in range(2):
        np.testing.assert_allclose(forward(obs.numpy()), model.q(obs).detach().numpy(), rtol=1e-5, atol=1e-6)
        with torch.no_grad():  # in-place changes show at once
            for parameter in model.parameters():
                parameter.mul_(1.5)


@pytest.mark.parametrize("settings", [*SETTINGS, None])
def test_gradients_of_quantiles_and_of_proposals_by_hand_equal_autograds(settings: dict[str, object] | None) -> None:
    model, (obs, fractions) = make_iqn(FQF if settings is None else IQN, **(settings or {})), draw_fractions()
    part = model.proposal if isinstance(model, FQF) else model
    params, features = FlatParams(part), torch.randn(IQN_ROWS, 8)
    if isinstance(model, FQF):
        torch.nn.init.normal_(model.proposal.linear.weight)
        given = model.proposal(features).widths
    else:
        given = model.quantiles(obs, fractions).transpose(1, 2)
    grad = torch.randn(given.shape, generator=torch.Generator().manual_seed(2))
    params.zero_grad()
    given.backward(grad)
    expected = params.grad_vector.clone()
    params.grad_vector.fill_(7.0)

    if isinstance(model, FQF):
        by_hand: Any = NumpyProposal(model.proposal.linear, params)
        own = by_hand.widths(features.numpy())
    else:
        by_hand = NumpyIQN(model, params)
        own = by_hand.quantiles(by_hand.features(obs.numpy()), fractions.numpy())
    by_hand.backward(grad.numpy().copy())

    np.testing.assert_allclose(own, given.detach().numpy(), rtol=1e-5, atol=1e-6)
    atol = 1e-6 if settings is None else 1e-5
    np.testing.assert_allclose(params.grad_vector.numpy(), expected.numpy(), rtol=1e-4, atol=atol)


def test_by_hand_follows_copies_and_moves() -> None:
    model, (obs, fractions) = make_iqn(), draw_fractions()
    params = FlatParams(model)
    by_hand = NumpyIQN(model, params)
    twin = copy.deepcopy((by_hand, params))[0]
    before = by_hand.quantiles(by_hand.features(obs.numpy()), fractions.numpy())

    params.data_vector.mul_(2.0)
    params.rebuild()

    after = by_hand.quantiles(by_hand.features(obs.numpy()), fractions.numpy())
    assert not np.allclose(after, before)
    np.testing.assert_array_equal(twin.quantiles(twin.features(obs.numpy()), fractions.numpy()), before)


def test_what_numpy_does_not_know_is_left_to_autograd() -> None:
    assert is_plain_iqn(make_iqn())
    assert not is_plain_iqn(make_iqn(activation="gelu"))
    assert not is_plain_iqn(make_iqn().double())
    hooked = make_iqn()
    hooked.embedding.register_forward_hook(lambda *_: None)
    assert not is_plain_iqn(hooked)
    with pytest.raises(SchemaError, match="use autograd"):
        NumpyIQN(hooked, FlatParams(hooked))


REFUSED = [
    *(
        (partial(DiscreteHead, 3, 2, layer_num=-1, linear=linear), "layer_num is -1")
        for linear in (nn.Linear, NoisyLinear)
    ),
    (lambda: DQN(4, [2, 3]), r"action_shape is \(2, 3\)"),
    (lambda: DQN(4, 2).q(torch.zeros(4)), "give a batch"),
    *(
        (
            partial(MODEL_REGISTRY.build, name, obs_shape=3, action_shape=[2, 3]),
            f"the '{name}' model needs one number of",
        )
        for name in ("c51dqn", "qrdqn", "rainbowdqn", "iqn", "drqn")
    ),
    (lambda: DRQN(3, 2, **SMALL, lstm_type="lstm"), "lstm_type is 'lstm'; expected 'normal', 'pytorch' or 'gru'"),
    (lambda: DRQN(3, 2, **SMALL, res_link=True, lstm_hidden_size=5), "give lstm_hidden_size=6, or leave it out"),
    (lambda: DRQN(3, 2, **SMALL, lstm_hidden_size=0), "hidden size 0"),
    (lambda: IQN(3, 2, [8], num_quantiles=0), "num_quantiles"),
    (lambda: IQN(3, 2, [8], quantile_embedding_size=0), "quantile_embedding_size"),
    (lambda: make_iqn().quantiles(draw_fractions()[0], torch.rand(IQN_ROWS)), "fractions have shape"),
    (lambda: make_iqn().quantiles(draw_fractions()[0], torch.rand(2, 7)), "fractions have shape"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_what_does_not_fit_is_refused(call: Any, message: str) -> None:
    with pytest.raises((ConfigError, SchemaError), match=message):
        call()
