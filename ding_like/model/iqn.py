"""Define the implicit quantile network (Dabney et al. 2018b): the return of every action at fractions asked for."""

from __future__ import annotations

from collections.abc import Sequence
from math import pi
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from ding_like.errors import SchemaError
from ding_like.model.dqn import one_action
from ding_like.model.encoder import ObsShape, build_encoder
from ding_like.model.head import DiscreteHead, DuelingHead
from ding_like.model.mlp import Activation, NormType, as_sizes
from ding_like.utils.registries import MODEL_REGISTRY


class CosineEmbedding(nn.Module):
    """Embed fractions [B, N] as features [B, N, D]: `relu(W c + b)` of cosines `c_i = cos(pi i fraction)`, i from 0.

    Source: Dabney et al. 2018b, eq. 4.
    """

    def __init__(self, num_cosines: int, output_size: int) -> None:
        super().__init__()
        self.num_cosines = num_cosines
        self.linear = nn.Linear(num_cosines, output_size)

    def forward(self, fractions: Tensor) -> Tensor:
        index = torch.arange(self.num_cosines, dtype=fractions.dtype, device=fractions.device)
        return relu(self.linear(torch.cos(fractions.unsqueeze(-1) * (pi * index))))


@MODEL_REGISTRY.register("iqn")
class IQN(nn.Module):
    """Estimate quantiles of every action's return: `head(encoder(obs) * embedding(fraction))`.

    `num_quantiles` is how many are asked for to act, at equally spaced fractions. `quantile_embedding_size` is the
    number of cosines that a fraction is embedded by. Encoder and head are those of the 'dqn' model.
    Raises ConfigError for sizes that do not fit.
    """

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int],
        encoder_hidden_size_list: Sequence[int] | None = None,
        *,
        num_quantiles: int = 32,
        quantile_embedding_size: int = 128,
        dueling: bool = False,
        head_hidden_size: int | None = None,
        head_layer_num: int = 1,
        activation: Activation = "relu",
        norm_type: NormType | None = None,
        encoder_kernel_size: Sequence[int] | None = None,
        encoder_stride: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        num_actions = one_action(action_shape, model="iqn")
        self.num_quantiles = as_sizes("num_quantiles", num_quantiles)[0]
        self.encoder = build_encoder(
            obs_shape,
            encoder_hidden_size_list,
            kernel_size=encoder_kernel_size,
            stride=encoder_stride,
            activation=activation,
            norm_type=norm_type,
        )
        num_cosines = as_sizes("quantile_embedding_size", quantile_embedding_size)[0]
        self.embedding = CosineEmbedding(num_cosines, self.encoder.output_size)
        head = DuelingHead if dueling else DiscreteHead
        self.head = head(
            self.encoder.output_size,
            num_actions,
            hidden_size=head_hidden_size,
            layer_num=head_layer_num,
            activation=activation,
            norm_type=norm_type,
        )

    def midpoints(self) -> Tensor:
        """Return the middles of `num_quantiles` equal parts of [0, 1], `(i - 0.5) / K`, as [1, K]."""
        weight = self.embedding.linear.weight
        return (torch.arange(self.num_quantiles, dtype=weight.dtype, device=weight.device) + 0.5)[
            None
        ] / self.num_quantiles

    def quantiles(self, x: Any, fractions: Tensor) -> Tensor:
        """Return the returns [B, A, N] of observations [B, O...] at fractions, [B, N] or [1, N] for all rows.

        `x` is a tensor or a dict of them. Raises SchemaError for fractions of another shape.
        """
        return self.of_features(self.encoder(x), fractions)

    def of_features(self, features: Tensor, fractions: Tensor) -> Tensor:
        """Return the returns [B, A, N] of encoded observations [B, D]; else like `quantiles`."""
        rows = fractions.shape[0]
        if fractions.dim() != 2 or (rows != 1 and rows != features.shape[0]):
            raise SchemaError(
                f"fractions have shape {tuple(fractions.shape)}, expected [{len(features)}, N] or [1, N]: some numbers "
                "for each row, or the same for all"
            )
        mixed = features.unsqueeze(1) * self.embedding(fractions)  # [B, N, D]
        values: Tensor = self.head(mixed.flatten(0, 1))
        return values.view(*mixed.shape[:2], -1).transpose(1, 2)

    def q(self, x: Any) -> Tensor:
        """Return the expected returns [B, A] of observations [B, O...]: the mean over quantiles at the midpoints."""
        return self.quantiles(x, self.midpoints()).mean(-1)

    def forward(self, x: Any) -> dict[str, Tensor]:
        """Return {'logit': mean [B, A] of 'q', 'q': quantiles [B, A, K], 'quantiles': their fractions [1, K]}."""
        fractions = self.midpoints()
        values = self.quantiles(x, fractions)
        return {"logit": values.mean(-1), "q": values, "quantiles": fractions}
