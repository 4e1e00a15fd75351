"""Residual blocks: what they compute, which models take them, and what is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ding_like.errors import ConfigError
from ding_like.model.encoder import build_encoder
from ding_like.model.layers import ResidualBlock, build_mlp
from ding_like.model.qac import ContinuousQAC, DiscreteCritics, DiscreteQAC, FirstCritic
from ding_like.model.vac import VAC

WIDTHS = dict(actor_head_hidden_size=6, critic_head_hidden_size=6, block="simba")


def test_a_block_adds_to_its_input_what_two_layers_make_of_it_normalised() -> None:
    block, x = ResidualBlock(4), torch.randn(5, 4)
    _, wide, _, narrow = block.main

    centred = x - x.mean(dim=1, keepdim=True)
    normal = centred / (centred.square().mean(dim=1, keepdim=True) + 1e-5).sqrt()
    hidden = (normal @ wide.weight.T + wide.bias).clamp(min=0.0)

    assert wide.out_features == 16
    torch.testing.assert_close(block(x), x + hidden @ narrow.weight.T + narrow.bias)


def test_the_first_hidden_layer_is_linear_and_a_norm_follows_the_last() -> None:
    layers = build_mlp(3, [4, 4, 4], block="simba")

    assert [type(layer) for layer in layers] == [nn.Linear, ResidualBlock, ResidualBlock, nn.LayerNorm]


@pytest.mark.parametrize(
    ("make", "blocks"),
    [
        (lambda: ContinuousQAC(3, 2, "regression", True, **WIDTHS), 1 + 2),
        (lambda: ContinuousQAC(3, 2, "reparameterization", critic_head_layer_num=2, num_quantiles=5, **WIDTHS), 1 + 2),
        (lambda: DiscreteQAC(3, 2, True, actor_head_layer_num=2, **WIDTHS), 2 + 2),
        (lambda: DiscreteCritics(3, 2, critic_head_hidden_size=6, block="simba"), 1),
        (lambda: VAC(3, 2, encoder_hidden_size_list=[6, 6, 6], share_encoder=False, block="simba"), 2 + 2),
    ],
)
def test_actors_and_critics_are_made_of_blocks(make, blocks: int) -> None:
    model = make()

    assert sum(isinstance(layer, ResidualBlock) for layer in model.modules()) == blocks


def test_twin_critics_of_blocks_are_independent() -> None:
    model = ContinuousQAC(3, 2, "regression", True, **WIDTHS)
    obs, action = torch.randn(5, 3), torch.rand(5, 2)
    values = model.critic(obs, action)

    torch.testing.assert_close(FirstCritic(model.critic)(obs, action), values[:1])
    values[0].sum().backward()
    first, second = model.critic.q.networks
    assert any(p.grad.any() for p in first.parameters())
    assert not any(p.grad.any() for p in second.parameters())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: build_mlp(3, [4, 5], block="simba"),
            r"hidden sizes are \[4, 5\], but block 'simba' needs two or more",
        ),
        (lambda: build_mlp(3, [4], block="simba"), "needs two or more, all of one width"),
        (lambda: build_mlp(3, [4, 4], block="resnet"), "block is 'resnet'; expected None or 'simba'"),
        (lambda: build_mlp(3, [4, 4], block="simba", norm_type="LN"), "has norms of its own"),
        (lambda: build_encoder((3, 84, 84), block="simba"), "block 'simba' is for vectors"),
    ],
)
def test_what_does_not_fit_is_refused(make, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
