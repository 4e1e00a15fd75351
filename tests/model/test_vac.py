"""The actor-critic network: its shapes, its beginning, and its towers in numpy."""

import numpy as np
import pytest
import torch
from torch import nn

from ding_like.errors import ConfigError
from ding_like.model import FlatParams, numpy_forward
from ding_like.model.numpy_networks import NumpyGrad, can_differentiate
from ding_like.model.vac import VAC, GaussianHead

SMALL = dict(encoder_hidden_size_list=[8, 8], activation="tanh", actor_head_layer_num=0, critic_head_layer_num=0)
KINDS = [
    dict(action_shape=3),
    dict(action_shape=[3, 2]),
    dict(action_shape=2, action_space="continuous"),
    dict(action_shape=2, action_space="continuous", sigma_type="conditioned", bound_type="tanh"),
    dict(action_shape=2, action_space="continuous", sigma_type="fixed", actor_head_layer_num=1),
    dict(action_shape=dict(action_type_shape=3, action_args_shape=2), action_space="hybrid"),
    dict(
        action_shape=dict(action_type_shape=3, action_args_shape=2),
        action_space="hybrid",
        sigma_type="conditioned",
        bound_type="tanh",
    ),
]
SIZES = [3, 5, 4, 4, 4, 7, 7]  # of the actor's output


def make(**changes) -> VAC:
    return VAC(4, **{**SMALL, "action_shape": 3, **changes})


@pytest.mark.parametrize("share", [True, False])
def test_both_at_once_equal_each_alone(share):
    model, x = make(share_encoder=share), torch.randn(5, 4)

    output, value = model.actor_critic(x)

    torch.testing.assert_close(output, model.actor(x))
    torch.testing.assert_close(value, model.critic(x))
    torch.testing.assert_close(model(x), {"logit": output, "value": value})


def test_a_shared_encoder_is_stored_once():
    shared, separate = make(share_encoder=True), make(share_encoder=False)

    assert sum("encoder" in name for name in shared.state_dict()) * 2 == sum(
        "encoder" in name for name in separate.state_dict()
    )


def test_images_take_the_convolutional_encoder():
    model = VAC([2, 36, 36], 3)

    assert model.actor(torch.zeros(2, 2, 36, 36, dtype=torch.uint8)).shape == (2, 3)


@pytest.mark.parametrize(("kind", "share"), [(kind, number % 2 == 0) for number, kind in enumerate(KINDS)])
def test_towers_in_numpy_equal_torch_and_follow_updates(kind, share):
    model = make(share_encoder=share, orthogonal_init=False, **kind)
    params = FlatParams(model)
    forwards = [numpy_forward(tower) for tower in model.towers()]
    x = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
    with torch.no_grad():
        params.data_vector.mul_(1.5)

        expected = model.actor(torch.from_numpy(x)).numpy(), model.critic(torch.from_numpy(x)).numpy()

    np.testing.assert_allclose(forwards[0](x), expected[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(forwards[1](x)[:, 0], expected[1], rtol=1e-5, atol=1e-5)


def test_orthogonal_init_makes_all_actions_about_equally_likely():
    probability = torch.softmax(make().actor(torch.randn(50, 4)), dim=1)

    assert (probability - 1 / 3).abs().max() < 0.02


def test_orthogonal_init_has_the_gains_of_the_paper():
    model = make(share_encoder=False)

    hidden = model.actor_encoder.main[2].weight
    torch.testing.assert_close(hidden @ hidden.T, 2 * torch.eye(8), atol=1e-5, rtol=0)
    torch.testing.assert_close(model.critic_head.main[-1].weight.norm(), torch.tensor(1.0))
    assert all(not layer.bias.any() for layer in model.modules() if isinstance(layer, nn.Linear))


@pytest.mark.parametrize(
    ("sigma", "expected"),
    [
        (dict(sigma_type="independent"), 1.0),
        (dict(sigma_type="independent", initial_sigma=0.5), 0.5),
        (dict(sigma_type="conditioned", initial_sigma=0.5), 0.5),
        (dict(sigma_type="fixed"), 0.3),
    ],
)
def test_sigma_begins_where_it_is_told(sigma, expected):
    model = make(action_shape=2, action_space="continuous", **sigma)

    log_sigma = model.actor(torch.zeros(3, 4))[:, 2:]

    torch.testing.assert_close(log_sigma.exp(), torch.full((3, 2), expected))


def test_fixed_sigma_is_saved_but_not_trained():
    head = GaussianHead(3, 2, sigma_type="fixed")

    assert "log_sigma" in head.state_dict()
    assert "log_sigma" not in dict(head.named_parameters())


def test_bound_type_tanh_keeps_the_mean_inside():
    model = make(action_shape=2, action_space="continuous", bound_type="tanh", orthogonal_init=False)

    assert model.actor(1e4 * torch.randn(20, 4))[:, :2].abs().max() <= 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(action_space="mixed"), "'mixed'; expected 'discrete', 'continuous' or 'hybrid'"),
        (dict(action_space="hybrid"), "need dict\\(action_type_shape=number of choices"),
        (dict(action_space="continuous", action_shape=[2, 2]), "need one number"),
        (dict(action_space="continuous", sigma_type="free"), "'free'; expected 'independent'"),
        (dict(action_space="continuous", initial_sigma=0.0), "sigma 0.0"),
        (dict(action_space="continuous", bound_type="clip"), "bound_type 'clip'"),
        (dict(action_shape=0), "action_shape"),
    ],
)
def test_settings_that_do_not_fit_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        make(**change)


def test_the_actor_gives_what_its_distribution_is_made_of():
    assert [make(**kind).actor(torch.zeros(7, 4)).shape for kind in KINDS] == [(7, size) for size in SIZES]


def test_a_sigma_at_its_limit_gets_no_gradient_by_hand_either():
    head = GaussianHead(1, 2, layer_num=0, sigma_type="conditioned")
    with torch.no_grad():
        head.sigma_layer.weight.copy_(torch.tensor([[9.0], [1.0]]))
        head.sigma_layer.bias.zero_()
    params = FlatParams(head)
    by_hand = NumpyGrad(head, params)

    output = by_hand.forward(np.ones((1, 1), np.float32))
    by_hand.backward(np.ones((1, 4), np.float32))

    assert output[0, 2:].tolist() == [2.0, 1.0]
    assert head.sigma_layer.weight.grad.ravel().tolist() == [0.0, 1.0]


def test_networks_that_numpy_does_not_know_are_left_to_autograd():
    assert can_differentiate(make())
    assert not can_differentiate(make(activation="gelu"))
    assert not can_differentiate(VAC([2, 36, 36], 3))
