"""Heads: features [B, input_size] become one number for each action [B, A], or N of them [B, A, N]; noisy layers.

A noisy layer with p inputs and q outputs computes, of eps ~ N(0, 1) (Fortunato et al. 2018, equations 9 to 11),

    y     = (mu_w + sigma_w * eps_w) x + mu_b + sigma_b * eps_b
    eps_w = f(eps_out) f(eps_in)'     eps_b = f(eps_out)     f(e) = sgn(e) sqrt(|e|)

The caller draws the noise, f(eps_in) and f(eps_out) side by side, so that a pass repeats exactly and rows of several
actors, each with its own noise, go through a network together. Without noise a layer is its means.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ding_like.errors import ConfigError, SchemaError
from ding_like.model.mlp import Activation, LinearStack, NormType, build_mlp

SIGMA_0 = 0.5  # of section 3.2: what factorised noise begins with, over the root of a layer's inputs


def factor_noise(eps: Tensor) -> Tensor:
    """Return f(eps) = sgn(eps) sqrt(|eps|) of standard normal numbers: what noisy layers take."""
    return eps.abs().sqrt_().copysign_(eps)


class NoisyLinear(nn.Module):
    """Linear layer whose weights and biases have a learned mean and a learned amount of noise.

    Means begin uniform in +-1/sqrt(p) for p inputs and noise at 0.5/sqrt(p) (section 3.2).
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.noise_size = in_features + out_features
        bound = 1.0 / math.sqrt(in_features)
        self.weight_mu = nn.Parameter(torch.empty(out_features, in_features).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((out_features, in_features), SIGMA_0 * bound))
        self.bias_mu = nn.Parameter(torch.empty(out_features).uniform_(-bound, bound))
        self.bias_sigma = nn.Parameter(torch.full((out_features,), SIGMA_0 * bound))

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        """Return y [B, q] of x [B, p], under one noise [p + q] for all rows or one for each [B, p + q]."""
        y = F.linear(x, self.weight_mu, self.bias_mu)
        if noise is None:
            return y
        noise_in, noise_out = noise[..., : self.in_features], noise[..., self.in_features :]
        # (sigma_w * out in') x = out * (sigma_w (in * x)): no matrix for each row.
        return y + noise_out * F.linear(x * noise_in, self.weight_sigma, self.bias_sigma)


# Any: an array or a tensor.
def check_noise(noise: Any, rows: int | None, size: int) -> None:
    """Raise SchemaError for noise that is neither [P] nor, where there may be one for each row, [B, P]."""
    if noise is not None and noise.shape != (size,) and (rows is None or noise.shape != (rows, size)):
        raise SchemaError(
            f"the noise has shape {tuple(noise.shape)}, but the network takes {(size,)} for all rows"
            + ("" if rows is None else f", or {(rows, size)} for each")
            + ": draw `noise_size` numbers"
        )


def hidden_layers(
    input_size: int,
    *,
    hidden_size: int | None = None,
    layer_num: int = 1,
    activation: Activation = "relu",
    norm_type: NormType | None = None,
    linear: Callable[[int, int], nn.Module] = nn.Linear,
) -> tuple[LinearStack, int]:
    """Return (`layer_num` hidden layers, as wide as the input unless `hidden_size` is given, their output's width)."""
    if layer_num < 0:
        raise ConfigError(f"head layer_num is {layer_num}; expected 0 (a linear output alone) or more")
    hidden = [input_size if hidden_size is None else hidden_size] * layer_num
    layers = build_mlp(input_size, hidden, activation=activation, norm_type=norm_type, linear=linear)
    return layers, (input_size, *hidden)[-1]


class DiscreteHead(nn.Module):
    """Hidden layers (`settings` are those of `hidden_layers`) and a linear output, with `num_points` [B, A, N].

    `linear` makes the layers: of `NoisyLinear` ones the head takes `noise_size` numbers of noise.
    """

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        num_points: int | None = None,
        linear: Callable[[int, int], nn.Module] = nn.Linear,
        **settings: Any,  # of each keyword its own
    ) -> None:
        super().__init__()
        self.num_points = num_points
        self.main, width = hidden_layers(input_size, linear=linear, **settings)
        self.main.append(linear(width, output_size * (num_points or 1)))
        self.noise_size = sum(getattr(layer, "noise_size", 0) for layer in self.main)

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        """Return the output under one noise [P] for all rows, or one for each [B, P]; None: of the means."""
        if noise is None:
            x = self.main(x)
        else:
            start = 0
            for layer in self.main:
                size = getattr(layer, "noise_size", 0)
                x = layer(x, noise[..., start : start + size]) if size else layer(x)
                start += size
        return x if self.num_points is None else x.view(x.shape[0], -1, self.num_points)


class DuelingHead(nn.Module):
    """Sum of the state's value and the actions' advantages, each from a stream of its own.

    `q = value + advantage - mean over actions of advantage`. With `num_points`, all three are N numbers for each action
    [B, A, N], the logits of a distribution or its quantiles. `settings` are those of `DiscreteHead`. Source: Wang et
    al. 2016, eq. 9; for distributions Hessel et al. 2018, "The integrated agent".
    """

    def __init__(self, input_size: int, output_size: int, **settings: Any) -> None:  # of each keyword its own
        super().__init__()
        self.value = DiscreteHead(input_size, 1, **settings)
        self.advantage = DiscreteHead(input_size, output_size, **settings)
        self.noise_size = self.value.noise_size + self.advantage.noise_size

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        """Return the output under noise, the value's and then the advantages'; see `DiscreteHead`."""
        own = (None, None) if noise is None else noise.tensor_split([self.value.noise_size], dim=-1)
        value, advantage = self.value(x, own[0]), self.advantage(x, own[1])
        q: Tensor = value + (advantage - advantage.mean(dim=1, keepdim=True))
        return q
