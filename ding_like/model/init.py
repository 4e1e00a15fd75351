"""Initialise networks."""

from __future__ import annotations

import torch
from torch import nn


def init_orthogonal(module: nn.Module, gain: float = 2**0.5) -> None:
    """Give every linear and convolutional layer in `module` orthogonal weights, times `gain`, and zero biases.

    Written in place, so parameters stay views of their FlatParams. Draws from torch's global generator, as torch's own
    initialisation does. The default gain suits ReLU. Source: Saxe et al. 2014.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
            # torch refuses weights that are not contiguous, which channels_last ones are not.
            fresh = torch.empty_like(layer.weight, memory_format=torch.contiguous_format)
            nn.init.orthogonal_(fresh, gain)
            with torch.no_grad():
                layer.weight.copy_(fresh)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
