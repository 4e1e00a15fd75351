"""Define the recurrent Q network of DRQN and R2D2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from torch import Tensor, nn

from ding_like.errors import ConfigError
from ding_like.model.dqn import one_action
from ding_like.model.encoder import ObsShape, build_encoder
from ding_like.model.head import DiscreteHead, DuelingHead
from ding_like.model.mlp import Activation, NormType
from ding_like.model.recurrent import CellType, RecurrentCore, over_time
from ding_like.types import Array
from ding_like.utils.registries import MODEL_REGISTRY

LSTMType = Literal["normal", "pytorch", "gru"]
_CELLS: dict[LSTMType, CellType] = {"normal": "norm_lstm", "pytorch": "lstm", "gru": "gru"}


@MODEL_REGISTRY.register("drqn")
class DRQN(nn.Module):
    """Network for the values of all actions given an episode's observations: encoder, recurrent layer, head.

    `lstm_type` is "normal", an LSTM with layer-normalised gates, "pytorch", `nn.LSTM`, or "gru"; `lstm_hidden_size` is
    its width (None: that of the encoder's output). With `res_link` the head receives the sum of the recurrent layer's
    input and output. All else is as in `DQN`. Raises ConfigError for sizes that do not fit.
    """

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int],
        encoder_hidden_size_list: Sequence[int] | None = None,
        *,
        dueling: bool = True,
        lstm_type: LSTMType = "normal",
        lstm_hidden_size: int | None = None,
        res_link: bool = False,
        head_hidden_size: int | None = None,
        head_layer_num: int = 1,
        activation: Activation = "relu",
        norm_type: NormType | None = None,
        encoder_kernel_size: Sequence[int] | None = None,
        encoder_stride: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        actions = one_action(action_shape, model="drqn")
        if lstm_type not in _CELLS:
            raise ConfigError(f"lstm_type is {lstm_type!r}; expected 'normal', 'pytorch' or 'gru'")
        self.encoder = build_encoder(
            obs_shape,
            encoder_hidden_size_list,
            kernel_size=encoder_kernel_size,
            stride=encoder_stride,
            activation=activation,
            norm_type=norm_type,
        )
        width = self.encoder.output_size
        hidden = width if lstm_hidden_size is None else lstm_hidden_size
        if res_link and hidden != width:
            raise ConfigError(
                f"res_link adds the encoder's {width} features to the {hidden} of the recurrent layer: give "
                f"lstm_hidden_size={width}, or leave it out"
            )
        self.core = RecurrentCore(width, hidden, cell_type=_CELLS[lstm_type])
        self._res_link = res_link
        self.head = (DuelingHead if dueling else DiscreteHead)(
            hidden,
            actions,
            hidden_size=head_hidden_size,
            layer_num=head_layer_num,
            activation=activation,
            norm_type=norm_type,
        )

    @property
    def initial_state(self) -> dict[str, Array]:
        """Return the recurrent state before an episode, float32 [H] by name."""
        return self.core.initial_state

    # Any: a tensor or a dict of them.
    def run(self, obs: Any, state: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return (action values [B, T, A], state [B, H] behind the last step) of sequences.

        `obs` is [B, T, O...] or a dict of such, `state` what is remembered of the steps before the first.
        """
        features = over_time(self.encoder, obs)
        remembered, behind = self.core(features, state)
        return over_time(self.head, features + remembered if self._res_link else remembered), behind

    def forward(self, obs: Any, state: Mapping[str, Tensor]) -> dict[str, Any]:
        """Return {'logit': action values [B, T, A], 'next_state': state behind the last step [B, H] by name}."""
        values, behind = self.run(obs, state)
        return {"logit": values, "next_state": behind}
