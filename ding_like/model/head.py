"""Turn features [B, input_size] into one number for each action [B, A], or into N of them [B, A, N]."""

from __future__ import annotations

from functools import partial

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


class DistributionHead(DiscreteHead):
    """Give `num_points` numbers for each action, [B, A, N]: what describes the distribution of its return."""

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        num_points: int,
        hidden_size: int | None = None,
        layer_num: int = 1,
        activation: Activation = "relu",
        norm_type: NormType | None = None,
    ) -> None:
        super().__init__(
            input_size,
            output_size * num_points,
            hidden_size=hidden_size,
            layer_num=layer_num,
            activation=activation,
            norm_type=norm_type,
        )
        self.num_points = num_points

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).view(x.shape[0], -1, self.num_points)


class DuelingHead(nn.Module):
    """Add the state's value and the actions' advantages, each from a stream of its own.

    `q = value + advantage - mean over actions of advantage`. With `num_points`, all three are N numbers for each action
    [B, A, N], the logits of a distribution or its quantiles. Source: Wang et al. 2016, eq. 9; for distributions Hessel
    et al. 2018, "The integrated agent".
    """

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        num_points: int | None = None,
        hidden_size: int | None = None,
        layer_num: int = 1,
        activation: Activation = "relu",
        norm_type: NormType | None = None,
    ) -> None:
        super().__init__()
        stream = DiscreteHead if num_points is None else partial(DistributionHead, num_points=num_points)
        self.value, self.advantage = (
            stream(
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
