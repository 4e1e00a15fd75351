"""Turn features [B, input_size] into one number for each action [B, A]."""

from __future__ import annotations

from torch import Tensor, nn

from ding_like.errors import ConfigError
from ding_like.model.mlp import Activation, NormType, build_mlp


class DiscreteHead(nn.Module):
    """Apply `layer_num` hidden layers, as wide as the input unless `hidden_size` is given, and a linear output."""

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
        self.main = build_mlp(input_size, hidden, activation=activation, norm_type=norm_type)
        self.main.append(nn.Linear((input_size, *hidden)[-1], output_size))

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.main(x)
        return output


class DuelingHead(nn.Module):
    """Add the state's value and the actions' advantages, each from a stream of its own.

    `q = value + advantage - mean over actions of advantage`. Source: Wang et al. 2016, eq. 9.
    """

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
        self.value, self.advantage = (
            DiscreteHead(
                input_size,
                size,
                hidden_size=hidden_size,
                layer_num=layer_num,
                activation=activation,
                norm_type=norm_type,
            )
            for size in (1, output_size)
        )

    def forward(self, x: Tensor) -> Tensor:
        advantage = self.advantage(x)
        q: Tensor = self.value(x) + (advantage - advantage.mean(dim=1, keepdim=True))
        return q
