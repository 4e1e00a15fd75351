import numpy as np
import pytest
import torch

from ding_like.errors import ConfigError, SchemaError
from ding_like.model.numpy_forward import numpy_forward
from ding_like.model.qac import DiscreteQAC


def make(**changes) -> DiscreteQAC:
    torch.manual_seed(0)
    return DiscreteQAC(**{**dict(obs_shape=3, action_shape=4), **changes})


@pytest.mark.parametrize(("twin", "num"), [(False, 1), (True, 2)])
def test_critics_give_a_value_per_network_row_and_action(twin, num):
    assert make(twin_critic=twin).critic(torch.randn(6, 3)).shape == (num, 6, 4)


def test_the_actor_gives_a_logit_per_action_and_the_model_is_what_it_says():
    model, obs = make(), torch.randn(6, 3)

    assert model.actor(obs).shape == (6, 4) and torch.equal(model(obs), model.actor(obs))


def test_twin_critics_share_nothing_on_vectors():
    model = make(twin_critic=True, encoder_hidden_size_list=[8, 8])
    values = model.critic(torch.randn(6, 3))

    gradients = torch.autograd.grad(values[0].sum(), list(model.critic.parameters()))

    assert all(not gradient[1].any() for gradient in gradients) and all(gradient[0].any() for gradient in gradients)


def test_small_actors_run_in_numpy_with_equal_results():
    model = make(encoder_hidden_size_list=[16, 16])
    fast, obs = numpy_forward(model.actor), torch.randn(5, 3)

    assert fast is not None
    np.testing.assert_allclose(fast(obs.numpy()), model.actor(obs).detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("sizes", "actor", "critic"),
    [(None, [5, 5, 4], [6, 6, 6, 4]), ([7, 8], [7, 8, 5, 4], [7, 8, 6, 6, 4])],
)
def test_hidden_layers_are_the_encoders_and_then_the_heads(sizes, actor, critic):
    heads = dict(actor_head_hidden_size=5, critic_head_hidden_size=6, critic_head_layer_num=2)
    model = make(encoder_hidden_size_list=sizes, **heads)

    assert [layer.out_features for layer in model.actor.modules() if isinstance(layer, torch.nn.Linear)] == actor
    assert [weight.shape[2] for weight in model.critic.q.weights] == critic


def test_images_and_dicts_are_encoded_apart_for_actor_and_critics():
    image = make(obs_shape=[3, 36, 36], twin_critic=True, encoder_hidden_size_list=[4, 4, 4, 8])
    parts = make(obs_shape={"place": 3, "kind": {"one_hot": [5]}}, twin_critic=True)
    obs = {"place": torch.randn(6, 3), "kind": torch.arange(6) % 5}

    assert image.critic(torch.rand(2, 3, 36, 36)).shape == (2, 2, 4)
    assert parts.critic(obs).shape == (2, 6, 4) and parts.actor(obs).shape == (6, 4)
    for model in (image, parts):
        shared = {id(p) for p in model.actor.parameters()} & {id(p) for p in model.critic.parameters()}
        assert not shared


def test_observations_of_another_shape_are_refused():
    with pytest.raises(SchemaError, match="built for observations"):
        make().critic(torch.randn(4, 5))


def test_several_actions_at_once_are_refused_with_a_way_out():
    with pytest.raises(ConfigError, match="flatten the action space"):
        make(action_shape=[3, 2])
