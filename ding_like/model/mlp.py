"""Build stacks of linear layers, which encoders and heads are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from ding_like.errors import ConfigError

Activation = Literal["relu", "tanh", "gelu", "silu", "elu", "identity"]
NormType = Literal["LN"]

_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "elu": nn.ELU,
    "identity": nn.Identity,
}


def build_activation(name: Activation) -> nn.Module:
    """Return the layer of that name; ConfigError lists the names otherwise."""
    if name not in _ACTIVATIONS:
        raise ConfigError(f"activation is {name!r}; expected one of {', '.join(map(repr, _ACTIVATIONS))}")
    return _ACTIVATIONS[name]()


class LinearStack(nn.Sequential):
    """Be a Sequential that calls its linear layers without the detour through Module.

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
