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


def test_the_vector_holds_all_parameters_in_order():
    net = make_net()
    expected = values_of(net)

    flat = FlatParams(net)

    assert torch.equal(flat.data_vector, expected)
    assert torch.equal(values_of(net), expected)


def test_backward_fills_the_gradient_vector():
    net, plain = make_net(), make_net()
    flat = FlatParams(net)

    loss_of(net).backward()
    loss_of(plain).backward()

    expected = torch.cat([param.grad.flatten() for param in plain.parameters()])
    torch.testing.assert_close(flat.grad_vector, expected)


def test_an_optimizer_on_the_vector_steps_like_one_on_the_parameters():
    make_optimizer = torch.optim.Adam
    net, plain = make_net(), make_net()
    flat = FlatParams(net)
    optimizer = make_optimizer([flat.as_parameter()], lr=0.1)
    plain_optimizer = make_optimizer(plain.parameters(), lr=0.1)

    for _ in range(5):
        flat.zero_grad()
        loss_of(net).backward()
        optimizer.step()
        plain_optimizer.zero_grad()
        loss_of(plain).backward()
        plain_optimizer.step()

    torch.testing.assert_close(values_of(net), values_of(plain))


def test_named_gives_live_views_in_the_parameters_shapes():
    net = make_net()
    named = FlatParams(net).named()

    with torch.no_grad():
        net[0].bias.fill_(7.0)

    assert {name: view.shape for name, view in named.items()} == {n: p.shape for n, p in net.named_parameters()}
    assert named["0.bias"].tolist() == [7.0] * 5


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
    for other in (make_net(width=6), nn.Sequential(nn.Linear(3, 5))):
        with pytest.raises(SchemaError, match=r"differ in layout: (0.weight \(5, 3\)|2.weight)"):
            FlatParams(make_net()).copy_from(FlatParams(other))


def test_copy_from_another_order_is_refused():
    net = make_net()
    pairs = list(net.named_parameters())
    other = [(name, nn.Parameter(param.detach().clone())) for name, param in reversed(pairs)]

    with pytest.raises(SchemaError, match="differ in layout"):
        FlatParams(net).copy_from(FlatParams(other))


def test_load_state_dict_keeps_the_views():
    net = make_net(0)
    flat = FlatParams(net)

    net.load_state_dict(make_net(1).state_dict())

    assert flat.is_intact()
    assert torch.equal(flat.data_vector, values_of(make_net(1)))


def test_rebuild_mends_the_views_after_a_cast():
    net = make_net()
    flat = FlatParams(net)
    parameter = flat.as_parameter()

    net.double()
    was_intact = flat.is_intact()
    flat.rebuild()

    assert not was_intact
    assert flat.is_intact()
    assert flat.data_vector.dtype == flat.grad_vector.dtype == torch.float64
    assert flat.as_parameter() is parameter
    assert parameter.data_ptr() == flat.data_vector.data_ptr()
    assert parameter.grad is flat.grad_vector


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

    assert flat.is_intact()
    assert flat.grad_vector.any()


def test_a_deep_copy_has_its_own_vector_with_the_same_values():
    net = make_net()
    flat = FlatParams(net)

    twin_net, twin = copy.deepcopy((net, flat))
    flat.data_vector.zero_()

    assert twin.is_intact()
    assert torch.equal(twin.data_vector, values_of(make_net()))
    assert torch.equal(values_of(twin_net), twin.data_vector)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_an_optimizer_copied_along_steps_the_copy(order):
    net = make_net()
    flat = FlatParams(net)
    parts = [net, flat, torch.optim.SGD([flat.as_parameter()], lr=1.0)]

    copies = copy.deepcopy([parts[i] for i in order])
    twin_net, twin, twin_optimizer = (copies[order.index(i)] for i in range(3))
    twin.zero_grad()
    loss_of(twin_net).backward()
    before, gradient = twin.data_vector.clone(), twin.grad_vector.clone()
    twin_optimizer.step()

    torch.testing.assert_close(values_of(twin_net), before - gradient)
    assert torch.equal(values_of(net), before)


def test_a_shared_parameter_has_one_place():
    layer = nn.Linear(3, 3)

    flat = FlatParams(nn.Sequential(layer, layer))

    assert flat.data_vector.numel() == 12
    assert list(flat.named()) == ["0.weight", "0.bias"]


def test_a_choice_of_parameters_leaves_the_others_alone():
    net = make_net()

    flat = FlatParams([(name, param) for name, param in net.named_parameters() if name.startswith("2.")])
    flat.data_vector.zero_()

    assert not net[2].weight.any()
    assert net[0].weight.any()


def test_channels_last_weights_stay_channels_last():
    encoder = ConvEncoder((2, 8, 8), [4, 4], kernel_size=[3], stride=[1])
    x = torch.rand(2, 2, 8, 8)
    before = encoder(x)

    flat = FlatParams(encoder)
    encoder(x).sum().backward()

    weight = encoder.conv[0].weight
    assert torch.equal(encoder(x), before)
    assert weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous()
    assert weight.grad.stride() == weight.stride()
    assert flat.is_intact()


def test_a_second_owner_takes_parameters_away_from_the_first():
    net = make_net()
    first = FlatParams(net)

    second = FlatParams(net[2])

    assert second.is_intact()
    assert not first.is_intact()


def test_mixed_dtypes_are_refused():
    with pytest.raises(SchemaError, match=r"0.weight is torch.float32 on cpu, 1.weight is torch.float64 on cpu"):
        FlatParams(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()))


def test_a_module_without_parameters_is_refused():
    with pytest.raises(SchemaError, match="no parameters"):
        FlatParams(nn.ReLU())


def test_one_name_for_two_parameters_is_refused():
    with pytest.raises(SchemaError, match=r"two parameters are called 'w'; put the modules into one nn.ModuleDict"):
        FlatParams([("w", nn.Parameter(torch.zeros(1))), ("w", nn.Parameter(torch.zeros(1)))])
