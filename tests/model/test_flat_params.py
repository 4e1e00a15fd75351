"""Flat parameters: one vector, views that hold, and what breaks them."""

import copy

import pytest
import torch
from torch import nn

from ding_like.errors import SchemaError
from ding_like.model import ConvEncoder, FlatParams


def make_net(seed=0, width=5):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 2))


def loss_of(net):
    return net(torch.ones(4, 3)).square().sum()


def values_of(net):
    return torch.cat([param.detach().flatten() for param in net.parameters()])


def is_intact(flat, net):
    """Tell whether parameters and gradients are views of the vectors, in order."""
    flat.data_vector.copy_(torch.arange(flat.data_vector.numel()))
    flat.grad_vector.copy_(flat.data_vector)
    grads = torch.cat([param.grad.flatten() for param in net.parameters()])
    return torch.equal(values_of(net), flat.data_vector) and torch.equal(grads, flat.grad_vector)


def test_the_vectors_hold_all_parameters_and_gradients_in_order():
    net, plain = make_net(), make_net()
    flat = FlatParams(net)
    assert torch.equal(flat.data_vector, values_of(plain))

    loss = flat.backward(loss_of(net))
    loss_of(plain).backward()

    expected = torch.cat([param.grad.flatten() for param in plain.parameters()])
    torch.testing.assert_close(flat.grad_vector, expected)
    assert flat.loss == loss == loss_of(net)
    assert is_intact(flat, net)


def test_copy_from_makes_networks_equal_and_keeps_them_apart():
    net, target = make_net(0), make_net(1)
    flat, flat_target = FlatParams(net), FlatParams(target)

    flat_target.copy_from(flat)
    flat.data_vector.add_(1.0)

    torch.testing.assert_close(values_of(target), values_of(net) - 1.0)


def test_lerp_from_moves_every_parameter_by_a_share():
    net, target = make_net(0), make_net(1)
    expected = [0.9 * old + 0.1 * new for old, new in zip(target.parameters(), net.parameters(), strict=True)]

    flat_target = FlatParams(target)
    flat_target.lerp_from(FlatParams(net), 0.1)

    for param, wanted in zip(target.parameters(), expected, strict=True):
        torch.testing.assert_close(param.detach(), wanted.detach())


def test_copy_from_another_layout_is_refused():
    another_order = nn.Sequential()
    for name in ("2", "0"):
        another_order.add_module(name, make_net().get_submodule(name))
    for other in (make_net(width=6), nn.Sequential(nn.Linear(3, 5)), another_order):
        with pytest.raises(SchemaError, match=r"differ in layout: (0.weight \(5, 3\)|2.weight)"):
            FlatParams(make_net()).copy_from(FlatParams(other))


def test_load_state_dict_keeps_the_views():
    net = make_net(0)
    flat = FlatParams(net)

    net.load_state_dict(make_net(1).state_dict())

    assert torch.equal(flat.data_vector, values_of(make_net(1)))
    assert is_intact(flat, net)


def test_rebuild_mends_the_views_after_a_cast():
    net = make_net()
    flat = FlatParams(net)

    net.double()
    flat.rebuild()

    assert flat.data_vector.dtype == flat.grad_vector.dtype == torch.float64
    assert is_intact(flat, net)


def test_zero_grad_refuses_to_go_on_after_a_move():
    net = make_net()
    flat = FlatParams(net)
    net.double()

    with pytest.raises(SchemaError, match=r"call rebuild\(\) after module.to"):
        flat.zero_grad()


def test_zero_grad_attaches_gradients_that_the_module_dropped():
    net = make_net()
    flat = FlatParams(net)
    net.zero_grad(set_to_none=True)

    flat.zero_grad()
    loss_of(net).backward()

    assert flat.grad_vector.any()
    assert is_intact(flat, net)


def test_a_deep_copy_has_its_own_vector_with_the_same_values():
    net = make_net()
    flat = FlatParams(net)

    twin_net, twin = copy.deepcopy((net, flat))
    flat.data_vector.zero_()

    assert torch.equal(twin.data_vector, values_of(make_net()))
    assert is_intact(twin, twin_net)
    assert not flat.data_vector.any()


def test_a_shared_parameter_has_one_place():
    layer = nn.Linear(3, 3)

    flat = FlatParams(nn.Sequential(layer, layer))

    assert flat.data_vector.numel() == 12


def test_channels_last_weights_stay_channels_last():
    encoder = ConvEncoder((2, 8, 8), [4, 4], kernel_size=[3], stride=[1])
    x = torch.rand(2, 2, 8, 8)
    before = encoder(x)

    flat = FlatParams(encoder)
    encoder(x).sum().backward()

    weight = encoder.conv[0].weight
    assert weight.data_ptr() == flat.data_vector.data_ptr() and weight.grad.data_ptr() == flat.grad_vector.data_ptr()
    assert torch.equal(encoder(x), before)
    assert weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous()
    assert weight.grad.stride() == weight.stride()


def test_a_second_owner_takes_parameters_away_from_the_first():
    net = make_net()
    first = FlatParams(net)

    second = FlatParams(net[2])

    assert is_intact(second, net[2])
    assert not is_intact(first, net)


def test_mixed_dtypes_are_refused():
    with pytest.raises(SchemaError, match=r"0.weight is torch.float32 on cpu, 1.weight is torch.float64 on cpu"):
        FlatParams(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()))


def test_a_module_without_parameters_is_refused():
    with pytest.raises(SchemaError, match="no parameters"):
        FlatParams(nn.ReLU())
