"""Be the network of algorithms that learn distributions of returns: an encoder, and a head of N numbers per action."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from ding_like.model.dqn import one_action
from ding_like.model.encoder import ObsShape, build_encoder
from ding_like.model.head import DistributionHead, DuelingHead
from ding_like.model.mlp import Activation, NormType


class DistributionalDQN(nn.Module):
    """Give `num_points` numbers for each action; a subclass says what they are.

    The other settings are DQN's (`model/dqn.py`), without dueling streams unless `dueling`. Raises ConfigError for
    sizes that do not fit.
    """

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int],
        encoder_hidden_size_list: Sequence[int] | None = None,
        *,
        num_points: int,
        name: str,
        dueling: bool = False,
        head_hidden_size: int | None = None,
        head_layer_num: int = 1,
        activation: Activation = "relu",
        norm_type: NormType | None = None,
        encoder_kernel_size: Sequence[int] | None = None,
        encoder_stride: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        num_actions = one_action(action_shape, model=name)
        self.encoder = build_encoder(
            obs_shape,
            encoder_hidden_size_list,
            kernel_size=encoder_kernel_size,
            stride=encoder_stride,
            activation=activation,
            norm_type=norm_type,
        )
        head = DuelingHead if dueling else DistributionHead
        self.head = head(
            self.encoder.output_size,
            num_actions,
            num_points=num_points,
            hidden_size=head_hidden_size,
            layer_num=head_layer_num,
            activation=activation,
            norm_type=norm_type,
        )

    def points(self, x: Any) -> Tensor:
        """Return N numbers for each action [B, A, N], of observations [B, O...], a tensor or a dict of them."""
        points: Tensor = self.head(self.encoder(x))
        return points
