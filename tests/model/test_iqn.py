"""The networks of IQN and FQF: embeddings beside loops, numpy beside torch."""

from __future__ import annotations

import copy
from math import cos, pi

import numpy as np
import pytest
import torch

from ding_like.errors import ConfigError, SchemaError
from ding_like.model.flat_params import FlatParams
from ding_like.model.numpy_networks import NumpyIQN, NumpyProposal, is_plain_iqn, numpy_forward
from ding_like.model.q_networks import FQF, IQN, CosineEmbedding, FractionProposal

OBS, ACTIONS, ROWS = 3, 4, 6


def make(kind: type[IQN] | type[FQF] = IQN, **settings: object) -> IQN | FQF:
    torch.manual_seed(0)
    defaults = dict(encoder_hidden_size_list=[8, 8], num_quantiles=5, quantile_embedding_size=6, head_layer_num=0)
    return kind(OBS, ACTIONS, **{**defaults, **settings})  # type: ignore[arg-type]


def draw(number: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(ROWS, OBS, generator=generator), torch.rand(ROWS, number, generator=generator)


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
    model, (obs, fractions) = make(), draw()

    values = model.quantiles(obs, fractions)

    assert values.shape == (ROWS, ACTIONS, 7)
    for row, n in np.ndindex(ROWS, 7):
        mixed = model.encoder(obs[row : row + 1])[0] * model.embedding(fractions[row : row + 1, n : n + 1])[0, 0]
        torch.testing.assert_close(values[row, :, n], model.head(mixed[None])[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(ROWS,), (2, 7)])
def test_fractions_that_do_not_fit_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(SchemaError, match="fractions have shape"):
        make().quantiles(draw()[0], torch.rand(shape))


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        (dict(num_quantiles=0), "num_quantiles"),
        (dict(quantile_embedding_size=0), "quantile_embedding_size"),
        (dict(action_shape=[2, 3]), "action_shape"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(settings: dict[str, object], what: str) -> None:
    action_shape = settings.pop("action_shape", ACTIONS)
    with pytest.raises(ConfigError, match=what):
        IQN(OBS, action_shape, [8], **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [IQN, FQF])
def test_forward_gives_expected_returns_quantiles_and_fractions(kind: type[IQN] | type[FQF]) -> None:
    model, (obs, _) = make(kind), draw()

    output = model(obs)

    assert output["q"].shape == (ROWS, ACTIONS, 5)
    torch.testing.assert_close(output["logit"], model.q(obs))
    assert output["quantiles"].shape == ((1, 5) if kind is IQN else (ROWS, 5))


# ---- proposals


def test_proposals_divide_the_unit_interval() -> None:
    torch.manual_seed(0)
    proposal = FractionProposal(8, 5)
    torch.nn.init.normal_(proposal.linear.weight)

    parts = proposal(torch.randn(ROWS, 8))

    widths = parts.widths
    torch.testing.assert_close(widths.sum(-1), torch.ones(ROWS))
    torch.testing.assert_close(parts.bounds, widths.cumsum(-1)[:, :-1])
    edges = torch.cat([torch.zeros(ROWS, 1), parts.bounds, torch.ones(ROWS, 1)], dim=1)
    torch.testing.assert_close(parts.midpoints, 0.5 * (edges[:, 1:] + edges[:, :-1]))
    torch.testing.assert_close(parts.entropy, torch.distributions.Categorical(probs=widths).entropy())


def test_the_quantiles_do_not_train_the_proposal_nor_it_the_encoder() -> None:
    model, (obs, _) = make(FQF), draw()

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
    model, (obs, _) = make(kind, **settings), draw()
    if isinstance(model, FQF):
        torch.nn.init.normal_(model.proposal.linear.weight)
    forward = numpy_forward(model)
    assert forward is not None

    for _ in range(2):
        np.testing.assert_allclose(forward(obs.numpy()), model.q(obs).detach().numpy(), rtol=1e-5, atol=1e-6)
        with torch.no_grad():  # in-place changes show at once
            for parameter in model.parameters():
                parameter.mul_(1.5)


@pytest.mark.parametrize("settings", SETTINGS)
def test_gradients_by_hand_equal_autograds(settings: dict[str, object]) -> None:
    model, (obs, fractions) = make(**settings), draw()
    params = FlatParams(model)
    values = model.quantiles(obs, fractions)
    grad = torch.randn(values.shape, generator=torch.Generator().manual_seed(2))
    params.zero_grad()
    values.backward(grad)
    expected = params.grad_vector.clone()

    by_hand = NumpyIQN(model, params)
    params.grad_vector.fill_(7.0)
    own = by_hand.quantiles(by_hand.features(obs.numpy()), fractions.numpy())
    by_hand.backward(grad.transpose(1, 2).contiguous().numpy())

    np.testing.assert_allclose(own, values.detach().transpose(1, 2).numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(params.grad_vector.numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)


def test_gradients_of_proposals_by_hand_equal_autograds() -> None:
    torch.manual_seed(0)
    proposal = FractionProposal(8, 5)
    torch.nn.init.normal_(proposal.linear.weight)
    params, features, grad = FlatParams(proposal), torch.randn(ROWS, 8), torch.randn(ROWS, 5)
    params.zero_grad()
    widths = proposal(features).widths
    widths.backward(grad)
    expected = params.grad_vector.clone()

    by_hand = NumpyProposal(proposal.linear, params)
    params.grad_vector.fill_(7.0)
    own = by_hand.widths(features.numpy())
    by_hand.backward(grad.numpy())

    np.testing.assert_allclose(own, widths.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(params.grad_vector.numpy(), expected.numpy(), rtol=1e-4, atol=1e-6)


def test_by_hand_follows_copies_and_moves() -> None:
    model, (obs, fractions) = make(), draw()
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
    assert is_plain_iqn(make())
    assert not is_plain_iqn(make(norm_type="LN"))
    assert not is_plain_iqn(make().double())
    hooked = make()
    hooked.embedding.register_forward_hook(lambda *_: None)
    assert not is_plain_iqn(hooked)
    with pytest.raises(SchemaError, match="use autograd"):
        NumpyIQN(hooked, FlatParams(hooked))
