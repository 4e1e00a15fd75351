"""Build stacks of linear layers, which encoders and heads are made of."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Literal

from torch import nn

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


def build_mlp(
    input_size: int,
    hidden_size_list: Sequence[int],
    *,
    activation: Activation = "relu",
    norm_type: NormType | None = None,
) -> nn.Sequential:
    """Return linear layers of these widths, each followed by the norm, if any, and the activation.

    `norm_type` 'LN' is layer normalisation (Ba et al. 2016). Raises ConfigError for a width below 1, another
    activation or another norm.
    """
    if norm_type not in (None, "LN"):
        raise ConfigError(f"norm_type is {norm_type!r}; expected None or 'LN'")
    widths = as_sizes("hidden sizes", hidden_size_list)
    layers: list[nn.Module] = []
    for fan_in, width in zip((input_size, *widths), widths, strict=False):
        layers.append(nn.Linear(fan_in, width))
        if norm_type == "LN":
            layers.append(nn.LayerNorm(width))
        layers.append(build_activation(activation))
    return nn.Sequential(*layers)


def as_sizes(what: str, value: object) -> tuple[int, ...]:
    """Return a whole number, or a sequence of them, as a tuple; ConfigError if one is below 1 or no whole number."""
    items = (value,) if isinstance(value, str) or not isinstance(value, Sequence) else tuple(value)
    sizes = tuple(int(item) for item in items if not isinstance(item, bool) and isinstance(item, Integral))
    if len(sizes) < len(items) or any(size < 1 for size in sizes):
        raise ConfigError(f"{what}: expected whole numbers above 0, got {value!r}")
    return sizes
