"""Make linear layers noisy, as much as they learn to be (Fortunato et al. 2018, "Noisy networks for exploration").

With p inputs, q outputs and eps ~ N(0, 1) of that many numbers, a layer computes (equations 9 to 11)

    y     = (mu_w + sigma_w * eps_w) x + mu_b + sigma_b * eps_b
    eps_w = f(eps_out) f(eps_in)'     eps_b = f(eps_out)     f(e) = sgn(e) sqrt(|e|)

Noise is never drawn here: it is passed in, as f(eps_in) and f(eps_out) side by side, so that a pass repeats exactly and
rows of several actors, each with its own noise, go through a network together. Without noise a layer is its means.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ding_like.errors import ConfigError
from ding_like.model.mlp import Activation, NormType, build_mlp

SIGMA_0 = 0.5  # of section 3.2: what factorised noise begins with, over the root of a layer's inputs


def factor_noise(eps: Tensor) -> Tensor:
    """Return f(eps) = sgn(eps) sqrt(|eps|) of standard normal numbers: what noisy layers take."""
    return eps.abs().sqrt_().copysign_(eps)


class NoisyLinear(nn.Module):
    """Be a linear layer whose weights and biases have a learned mean and a learned amount of noise.

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

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"


class NoisyHead(nn.Module):
    """Be a `DiscreteHead` whose linear layers are noisy: `layer_num` hidden layers and a linear output."""

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        hidden_size: int | None = None,
        layer_num: int = 1,
        activation: Activation = "relu",
        norm_type: NormType | None = None,
    ) -> None:
        super().__init__()
        if layer_num < 0:
            raise ConfigError(f"head layer_num is {layer_num}; expected 0 (a linear output alone) or more")
        hidden = [input_size if hidden_size is None else hidden_size] * layer_num
        body = build_mlp(input_size, hidden, activation=activation, norm_type=norm_type, linear=NoisyLinear)
        self.main = nn.ModuleList((*body, NoisyLinear((input_size, *hidden)[-1], output_size)))
        # Where each layer's numbers stand in the noise of all; None for a layer without.
        self.places = noise_places(self.main)
        self.noise_size = sum(place.stop - place.start for place in self.places if place is not None)

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        """Return the output [B, ...] under one noise [P] for all rows, or one for each [B, P]; None: of the means."""
        for layer, place in zip(self.main, self.places, strict=True):
            x = layer(x) if place is None or noise is None else layer(x, noise[..., place])
        return x


def noise_places(layers: Iterable[nn.Module]) -> list[slice | None]:
    """Return where the numbers of each layer with a `noise_size` stand, one after the other; None for one without."""
    places: list[slice | None] = []
    start = 0
    for layer in layers:
        size = getattr(layer, "noise_size", 0)
        places.append(slice(start, start + size) if size else None)
        start += size
    return places
