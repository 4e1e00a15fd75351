"""Define the Q network of DQN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from ding_like.errors import ConfigError
from ding_like.model.encoder import ObsShape, build_encoder
from ding_like.model.head import DiscreteHead, DuelingHead
from ding_like.model.mlp import Activation, NormType, as_sizes
from ding_like.utils.registries import MODEL_REGISTRY


@MODEL_REGISTRY.register("dqn")
class DQN(nn.Module):
    """Estimate the value of every action: an encoder chosen by the observation's shape, and a head.

    `encoder_hidden_size_list` is the encoder's (None: 128-128-64 for vectors, the network of Mnih et al. 2015 for
    images). The head has `head_layer_num` hidden layers of `head_hidden_size` (None: as wide as the encoder's output)
    before its linear output, in each of two streams if `dueling`. `dueling=False, head_layer_num=0` is a plain MLP.
    Raises ConfigError for sizes that do not fit.
    """

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int],
        encoder_hidden_size_list: Sequence[int] | None = None,
        *,
        dueling: bool = True,
        head_hidden_size: int | None = None,
        head_layer_num: int = 1,
        activation: Activation = "relu",
        norm_type: NormType | None = None,
        encoder_kernel_size: Sequence[int] | None = None,
        encoder_stride: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        num_actions = one_action(action_shape, model="dqn")
        self.encoder = build_encoder(
            obs_shape,
            encoder_hidden_size_list,
            kernel_size=encoder_kernel_size,
            stride=encoder_stride,
            activation=activation,
            norm_type=norm_type,
        )
        head = DuelingHead if dueling else DiscreteHead
        self.head = head(
            self.encoder.output_size,
            num_actions,
            hidden_size=head_hidden_size,
            layer_num=head_layer_num,
            activation=activation,
            norm_type=norm_type,
        )

    def q(self, x: Any) -> Tensor:
        """Return the action values [B, A] of observations [B, O...], a tensor or a dict of them."""
        values: Tensor = self.head(self.encoder(x))
        return values

    def forward(self, x: Any) -> dict[str, Tensor]:
        """Return {'logit': action values [B, A]}."""
        return {"logit": self.q(x)}


def one_action(action_shape: int | Sequence[int], *, model: str) -> int:
    """Return the number of discrete actions; ConfigError if there are several actions at a time."""
    actions = as_sizes("action_shape", action_shape)
    if len(actions) != 1:
        raise ConfigError(
            f"action_shape is {actions}, but the '{model}' model needs one number of discrete actions; "
            "flatten the action space in an env wrapper, or choose another model"
        )
    return actions[0]
