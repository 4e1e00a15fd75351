"""Layers that networks are made of: stacks of linear ones, heads, noisy and recurrent layers, and how weights begin.

Heads turn features [B, input_size] into one number for each action [B, A], or N of them [B, A, N]. A noisy layer with
p inputs and q outputs computes, of eps ~ N(0, 1) (Fortunato et al. 2018, equations 9 to 11),

    y     = (mu_w + sigma_w * eps_w) x + mu_b + sigma_b * eps_b
    eps_w = f(eps_out) f(eps_in)'     eps_b = f(eps_out)     f(e) = sgn(e) sqrt(|e|)

The caller draws the noise, f(eps_in) and f(eps_out) side by side, so that a pass repeats exactly and rows of several
actors, each with its own noise, go through a network together. Without noise a layer is its means. Recurrent layers
stand between an encoder and its heads, and run over sequences [B, T, ...].
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ding_like.data.batch import map_obs
from ding_like.errors import ConfigError, SchemaError
from ding_like.types import Array

# Observations of a batch as a network takes them: [B, O...], or one tensor per key of a dict space.
ObsTensor: TypeAlias = "Tensor | Mapping[str, Tensor]"

ActivationName = Literal["relu", "tanh", "gelu", "silu", "elu", "identity"]
# Its name, or a layer or class of layers of torch, as DI-engine's configs have it: nn.Tanh() or nn.Tanh.
Activation = ActivationName | nn.Module | type[nn.Module]
NormType = Literal["LN"]
Block = Literal["simba"]

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


class ResidualBlock(nn.Module):
    """`x + W_2 f(W_1 norm(x))` of features [B, F], with 4 F hidden units f(...) and layer normalisation.

    Source: Lee et al. 2024 (SimBa), section 4.
    """

    def __init__(self, width: int, *, activation: Activation = "relu") -> None:
        super().__init__()
        wide = 4 * width
        self.main = LinearStack(
            nn.LayerNorm(width), nn.Linear(width, wide), build_activation(activation), nn.Linear(wide, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + cast(Tensor, self.main(x))


def build_mlp(
    input_size: int,
    hidden_size_list: Sequence[int],
    *,
    activation: Activation = "relu",
    norm_type: NormType | None = None,
    block: Block | None = None,
    linear: Callable[[int, int], nn.Module] = nn.Linear,
) -> LinearStack:
    """Return linear layers of these widths, each followed by the norm, if any, and the activation.

    `norm_type` 'LN' is layer normalisation (Ba et al. 2016); `linear` makes a layer of the numbers of its inputs and
    outputs. With `block` 'simba' the first is a linear layer alone, each further one a `ResidualBlock`, and layer
    normalisation follows the last (Lee et al. 2024). Raises ConfigError for a width below 1, widths of blocks that
    differ, another activation, norm or block.
    """
    check_norm(norm_type)
    widths = as_sizes("hidden sizes", hidden_size_list)
    if block is not None:
        _check_block(block, widths, norm_type)
        blocks = [ResidualBlock(width, activation=activation) for width in widths[1:]]
        return LinearStack(nn.Linear(input_size, widths[0]), *blocks, nn.LayerNorm(widths[0]))
    layers: list[nn.Module] = []
    for fan_in, width in zip((input_size, *widths), widths, strict=False):
        layers.append(linear(fan_in, width))
        if norm_type == "LN":
            layers.append(nn.LayerNorm(width))
        layers.append(build_activation(activation))
    return LinearStack(*layers)


def check_norm(norm_type: object) -> None:
    """Raise ConfigError for another norm than None or 'LN'."""
    if norm_type not in (None, "LN"):
        raise ConfigError(f"norm_type is {norm_type!r}; expected None or 'LN'")


def check_no_norm(norm_type: object) -> None:
    """Raise ConfigError for a norm beside residual blocks."""
    if norm_type is not None:
        raise ConfigError(f"norm_type is {norm_type!r}, but block 'simba' has norms of its own; leave one of them out")


def _check_block(block: object, widths: Sequence[int], norm_type: NormType | None) -> None:
    if block != "simba":
        raise ConfigError(f"block is {block!r}; expected None or 'simba'")
    check_no_norm(norm_type)
    if len(widths) < 2 or len(set(widths)) > 1:
        raise ConfigError(f"hidden sizes are {list(widths)}, but block 'simba' needs two or more, all of one width")


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
        return cast(Tensor, value + (advantage - advantage.mean(dim=1, keepdim=True)))


CellType = Literal["lstm", "norm_lstm", "gru"]
State = tuple[Tensor, Tensor]


class LayerNormLSTM(nn.Module):
    """LSTM with layer-normalised gates (Ba et al. 2016, eq. 20 and 21), called as `nn.LSTM` is.

        i, f, o, g = LN(W_x x_t) + LN(W_h h_{t-1})
        c_t = sigmoid(f) c_{t-1} + sigmoid(i) tanh(g)
        h_t = sigmoid(o) tanh(c_t)

    Normalised gates do not saturate, so the forget gate stays below 1 and the cell's state bounded over episodes much
    longer than the sequences that are learned from.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.input = nn.Linear(input_size, 4 * hidden_size, bias=False)
        self.hidden = nn.Linear(hidden_size, 4 * hidden_size, bias=False)
        self.input_norm = nn.LayerNorm(4 * hidden_size)
        self.hidden_norm = nn.LayerNorm(4 * hidden_size)
        for layer in (self.input, self.hidden):
            nn.init.uniform_(layer.weight, -(hidden_size**-0.5), hidden_size**-0.5)

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Return (h of every step [T, B, H], (h, c) behind the last step [1, B, H]) of x [T, B, F] and (h, c)."""
        h, c = state[0].squeeze(0), state[1].squeeze(0)
        size = h.shape[1]
        steps = []
        for of_input in self.input_norm(self.input(x)).unbind(0):
            gates = of_input + self.hidden_norm(self.hidden(h))
            i, f, o = gates[:, : 3 * size].sigmoid().chunk(3, dim=1)
            c = torch.addcmul(f * c, i, gates[:, 3 * size :].tanh())
            h = o * c.tanh()
            steps.append(h)
        return torch.stack(steps), (h.unsqueeze(0), c.unsqueeze(0))


_LAYERS: dict[str, tuple[Callable[..., nn.Module], tuple[str, ...]]] = {
    "lstm": (nn.LSTM, ("h", "c")),
    "norm_lstm": (LayerNormLSTM, ("h", "c")),
    "gru": (nn.GRU, ("h",)),
}


class RecurrentCore(nn.Module):
    """Recurrent layer over sequences of features [B, T, F]; its state is columns [B, H] by name.

    `cell_type` is "lstm" (Hochreiter and Schmidhuber 1997), "norm_lstm" (`LayerNormLSTM`), both with the state `h` and
    `c`, or "gru" (Cho et al. 2014) with the state `h`. Before an episode the state is zero. Raises ConfigError for
    another type or a size below 1.
    """

    def __init__(self, input_size: int, hidden_size: int, *, cell_type: CellType = "lstm") -> None:
        super().__init__()
        if cell_type not in _LAYERS:
            raise ConfigError(f"the recurrent layer is {cell_type!r}; expected 'lstm', 'norm_lstm' or 'gru'")
        if hidden_size < 1:
            raise ConfigError(f"the recurrent layer has hidden size {hidden_size}; expected a number from 1")
        layer, self.state_names = _LAYERS[cell_type]
        self.rnn = layer(input_size, hidden_size)
        self.output_size = hidden_size

    @property
    def initial_state(self) -> dict[str, Array]:
        """Return the state before an episode, float32 [H] by name."""
        return {name: np.zeros(self.output_size, np.float32) for name in self.state_names}

    def forward(self, x: Tensor, state: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return (features [B, T, H], state [B, H] behind the last step) for `state` before the first step."""
        before = tuple(state[name].to(x.dtype).unsqueeze(0) for name in self.state_names)
        # Steps first in memory, as `over_time` lays them: that is what the layer runs on, so nothing is copied.
        y, after = self.rnn(x.transpose(0, 1), before if len(before) > 1 else before[0])
        behind = after if isinstance(after, tuple) else (after,)
        return y.transpose(0, 1), {
            name: column.squeeze(0) for name, column in zip(self.state_names, behind, strict=True)
        }


def over_time(module: nn.Module, x: ObsTensor) -> Tensor:
    """Apply a module for single steps to sequences: [B, T, ...] to [B, T, F]; dicts of such as one.

    In memory the steps come first.
    """
    first = x
    while not isinstance(first, Tensor):
        first = next(iter(first.values()))
    num_rows, num_steps = first.shape[:2]
    features: Tensor = module(map_obs(lambda part: part.transpose(0, 1).flatten(0, 1), x))
    return features.view(num_steps, num_rows, -1).transpose(0, 1)
