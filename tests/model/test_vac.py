"""Networks with an actor and a critic of states, or of actions: shapes, beginnings, towers in numpy."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import relu

from ding_like.errors import ConfigError, SchemaError
from ding_like.model import FlatParams, numpy_forward
from ding_like.model.numpy_networks import NumpyGrad, can_differentiate
from ding_like.model.qac import ContinuousQAC, DiscreteQAC, ParallelMLP
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


def make_continuous(action_space: str = "regression", **changes) -> ContinuousQAC:
    torch.manual_seed(0)
    return ContinuousQAC(**{**dict(obs_shape=3, action_shape=2, action_space=action_space), **changes})


def test_parallel_mlps_equal_separate_ones():
    torch.manual_seed(0)
    model, x = ParallelMLP(3, [5, 8, 8, 2]), torch.randn(7, 5)

    together = model(x)

    for member in range(3):
        y = x
        for layer in range(3):
            y = y @ model.weights[layer][member] + model.biases[layer][member]
            y = relu(y) if layer < 2 else y
        torch.testing.assert_close(together[member], y)


def test_parallel_mlps_begin_apart_and_like_linear_layers():
    torch.manual_seed(0)
    model = ParallelMLP(2, [100, 64, 1])

    assert not torch.equal(model.weights[0][0], model.weights[0][1])
    for layer, bound in ((0, 100**-0.5), (1, 64**-0.5)):
        largest = model.weights[layer].abs().max().item()
        assert 0.9 * bound < largest <= bound


def test_deterministic_actions_lie_within_one():
    action = make_continuous().actor(100 * torch.randn(50, 3))

    assert action.shape == (50, 2) and action.abs().max() <= 1.0


def test_layer_numbers_count_hidden_layers_after_the_first():
    model = make_continuous(actor_head_layer_num=2, critic_head_layer_num=0, critic_head_hidden_size=16)

    assert sum(isinstance(layer, torch.nn.Linear) for layer in model.actor.modules()) == 4
    assert [tuple(weight.shape) for weight in model.critic.q.weights] == [(1, 5, 16), (1, 16, 1)]


def test_dict_observations_reach_actor_and_critics():
    model = ContinuousQAC({"a": 3, "b": {"one_hot": [4]}}, 2, "regression", twin_critic=True)
    x = {"a": torch.randn(5, 3), "b": torch.tensor([0, 1, 2, 3, 0])}

    assert model.actor(x).shape == (5, 2)
    values = model.critic(x, torch.zeros(5, 2))
    assert values.shape == (2, 5)
    # Rows 0 and 4 differ in "a", so something of it arrives; of "b" it does as well.
    x["b"] = torch.tensor([1, 1, 2, 3, 0])
    changed = (model.critic(x, torch.zeros(5, 2)) != values).any(dim=0)
    assert changed.tolist() == [True, False, False, False, False]


@pytest.mark.parametrize(
    "changes", [dict(n_atom=5), dict(v_min=0.0, v_max=1.0), dict(v_min=0.0, v_max=1.0, n_atom=5, num_quantiles=5)]
)
def test_a_support_is_three_numbers_and_takes_the_place_of_quantiles(changes):
    with pytest.raises(ConfigError, match="expected the first three together"):
        make_continuous(**changes)


def make_discrete(**changes) -> DiscreteQAC:
    torch.manual_seed(0)
    return DiscreteQAC(**{**dict(obs_shape=3, action_shape=4), **changes})


@pytest.mark.parametrize(("twin", "num"), [(False, 1), (True, 2)])
def test_critics_give_a_value_per_network_row_and_action(twin, num):
    assert make_discrete(twin_critic=twin).critic(torch.randn(6, 3)).shape == (num, 6, 4)


def test_the_actor_gives_a_logit_per_action_and_the_model_is_what_it_says():
    model, obs = make_discrete(), torch.randn(6, 3)

    assert model.actor(obs).shape == (6, 4) and torch.equal(model(obs), model.actor(obs))


def test_twin_critics_share_nothing_on_vectors():
    model = make_discrete(twin_critic=True, encoder_hidden_size_list=[8, 8])
    values = model.critic(torch.randn(6, 3))

    gradients = torch.autograd.grad(values[0].sum(), list(model.critic.parameters()))

    assert all(not gradient[1].any() for gradient in gradients) and all(gradient[0].any() for gradient in gradients)


@pytest.mark.parametrize(
    ("sizes", "actor", "critic"),
    [(None, [5, 5, 4], [6, 6, 6, 4]), ([7, 8], [7, 8, 5, 4], [7, 8, 6, 6, 4])],
)
def test_hidden_layers_are_the_encoders_and_then_the_heads(sizes, actor, critic):
    heads = dict(actor_head_hidden_size=5, critic_head_hidden_size=6, critic_head_layer_num=2)
    model = make_discrete(encoder_hidden_size_list=sizes, **heads)

    assert [layer.out_features for layer in model.actor.modules() if isinstance(layer, torch.nn.Linear)] == actor
    assert [weight.shape[2] for weight in model.critic.q.weights] == critic


@pytest.mark.parametrize(
    "model",
    [
        *(lambda space=space: make_continuous(space) for space in ("regression", "reparameterization")),
        lambda: make_discrete(encoder_hidden_size_list=[16, 16]),
    ],
)
def test_small_actors_run_in_numpy_with_equal_results(model):
    actor, obs = model().actor, torch.randn(5, 3)
    fast = numpy_forward(actor)

    assert fast is not None
    np.testing.assert_allclose(fast(obs.numpy()), actor(obs).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_images_and_dicts_are_encoded_apart_for_actor_and_critics():
    image = dict(obs_shape=[3, 36, 36], twin_critic=True, encoder_hidden_size_list=[4, 4, 4, 8])
    continuous, discrete = make_continuous(**image), make_discrete(**image)
    parts = make_discrete(obs_shape={"place": 3, "kind": {"one_hot": [5]}}, twin_critic=True)
    pixels = torch.randint(0, 256, (2, 3, 36, 36), dtype=torch.uint8)
    obs = {"place": torch.randn(6, 3), "kind": torch.arange(6) % 5}

    assert continuous.critic(pixels, continuous.actor(pixels)).shape == (2, 2)
    assert discrete.critic(pixels).shape == (2, 2, 4)
    assert parts.critic(obs).shape == (2, 6, 4) and parts.actor(obs).shape == (6, 4)
    for model in (continuous, discrete, parts):
        actors = {id(parameter) for parameter in model.actor.parameters()}
        assert actors.isdisjoint(id(parameter) for parameter in model.critic.parameters())


CONTINUOUS = dict(action_space="continuous")
REFUSED = [
    (partial(make, action_space="mixed"), "'mixed'; expected 'discrete', 'continuous' or 'hybrid'"),
    (partial(make, action_space="hybrid"), "need dict\\(action_type_shape=number of choices"),
    (partial(make, **CONTINUOUS, action_shape=[2, 2]), "need one number"),
    (partial(make, **CONTINUOUS, sigma_type="free"), "'free'; expected 'independent'"),
    (partial(make, **CONTINUOUS, initial_sigma=0.0), "sigma 0.0"),
    (partial(make, **CONTINUOUS, bound_type="clip"), "bound_type 'clip'"),
    (partial(make, action_shape=0), "action_shape"),
    (partial(make_continuous, action_shape=[2, 2]), "one length"),
    (partial(make_continuous, action_space="discrete"), "'regression' or 'reparameterization'"),
    (partial(make_continuous, encoder_hidden_size_list=[64]), "actor_head_hidden_size"),
    (
        partial(make_continuous, critic_head_hidden_size=0),
        "critic_head_hidden_size: expected whole numbers above 0, got 0",
    ),
    (partial(make_continuous, obs_shape={"a": 3}, encoder_hidden_size_list=[8]), "is for images"),
    (lambda: make_continuous().critic(torch.randn(4, 5), torch.rand(4, 2)), r"\[B, 3\], got \[4, 5\]"),
    (lambda: make_discrete().critic(torch.randn(4, 5)), "built for observations"),
    (partial(make_discrete, action_shape=[3, 2]), "flatten the action space"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises((ConfigError, SchemaError), match=message):
        call()
