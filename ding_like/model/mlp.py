"""Stacks of linear layers, which encoders and heads are made of, and how their weights begin."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ding_like.errors import ConfigError

ActivationName = Literal["relu", "tanh", "gelu", "silu", "elu", "identity"]
# Its name, or a layer or class of layers of torch, as DI-engine's configs have it: nn.Tanh() or nn.Tanh.
Activation = ActivationName | nn.Module | type[nn.Module]
NormType = Literal["LN"]

_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "elu": nn.ELU,
    "identity": nn.Identity,
}


def build_activation(activation: Activation) -> nn.Module:
    """Return a layer of that name or class, or a copy of a layer; ConfigError lists the names otherwise."""
    if isinstance(activation, nn.Module):
        return copy.deepcopy(activation)
    if isinstance(activation, type) and issubclass(activation, nn.Module):
        return activation()
    if not isinstance(activation, str) or activation not in _ACTIVATIONS:
        names = ", ".join(map(repr, _ACTIVATIONS))
        raise ConfigError(f"activation is {activation!r}; expected one of {names}, or a layer of torch: nn.Tanh()")
    return _ACTIVATIONS[activation]()


class LinearStack(nn.Sequential):
    """Sequential that calls its linear layers without the detour through Module.

    Each call of a Module costs more than a microsecond, which is much beside a layer of 128; a layer with hooks is
    called the usual way.
    """

    def forward(self, x: Tensor) -> Tensor:
        for layer in self._modules.values():
            assert layer is not None, "a stack holds no empty places"
            if type(layer) is nn.Linear and not (layer._forward_hooks or layer._forward_pre_hooks):
                parameters = layer._parameters
                x = F.linear(x, parameters["weight"], parameters["bias"])  # type: ignore[arg-type]
            elif type(layer) is nn.ReLU and not (layer._forward_hooks or layer._forward_pre_hooks):
                x = F.relu(x)
            else:
                x = layer(x)
        return x


def build_mlp(
    input_size: int,
    hidden_size_list: Sequence[int],
    *,
    activation: Activation = "relu",
    norm_type: NormType | None = None,
    linear: Callable[[int, int], nn.Module] = nn.Linear,
) -> LinearStack:
    """Return linear layers of these widths, each followed by the norm, if any, and the activation.

    `norm_type` 'LN' is layer normalisation (Ba et al. 2016); `linear` makes a layer of the numbers of its inputs and
    outputs. Raises ConfigError for a width below 1, another activation or another norm.
    """
    if norm_type not in (None, "LN"):
        raise ConfigError(f"norm_type is {norm_type!r}; expected None or 'LN'")
    widths = as_sizes("hidden sizes", hidden_size_list)
    layers: list[nn.Module] = []
    for fan_in, width in zip((input_size, *widths), widths, strict=False):
        layers.append(linear(fan_in, width))
        if norm_type == "LN":
            layers.append(nn.LayerNorm(width))
        layers.append(build_activation(activation))
    return LinearStack(*layers)


def as_sizes(what: str, value: object) -> tuple[int, ...]:
    """Return a whole number, or a sequence of them, as a tuple; ConfigError if one is below 1 or no whole number."""
    items = (value,) if isinstance(value, str) or not isinstance(value, Sequence) else tuple(value)
    sizes = tuple(int(item) for item in items if not isinstance(item, bool) and isinstance(item, Integral))
    if len(sizes) < len(items) or any(size < 1 for size in sizes):
        raise ConfigError(f"{what}: expected whole numbers above 0, got {value!r}")
    return sizes


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
