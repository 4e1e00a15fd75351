"""Define the network of actor-critic methods that remembers: what to do, and what a history is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from ding_like.model.encoder import ObsShape, build_encoder
from ding_like.model.head import DiscreteHead
from ding_like.model.mlp import Activation, NormType
from ding_like.model.recurrent import CellType, RecurrentCore, over_time
from ding_like.model.vac import ActionSpace, BoundType, SigmaType, build_actor_head, init_actor_critic
from ding_like.types import Array
from ding_like.utils.registries import MODEL_REGISTRY

State = dict[str, Tensor]


@MODEL_REGISTRY.register("recurrent_vac")
class RecurrentVAC(nn.Module):
    """Actor and critic on one recurrent layer: an encoder, an LSTM or a GRU over time, and two heads.

    Observations are sequences [B, T, O...]; the state before the first step goes in and that behind the last one comes
    out, columns [B, H] by name. `hidden_size` is H. Heads and `orthogonal_init` are those of `VAC`; the memory's
    weights begin orthogonal too, with gain 1. Raises ConfigError for sizes that do not fit.
    """

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int],
        *,
        action_space: ActionSpace = "discrete",
        encoder_hidden_size_list: Sequence[int] | None = None,
        encoder_kernel_size: Sequence[int] | None = None,
        encoder_stride: Sequence[int] | None = None,
        cell_type: CellType = "lstm",
        hidden_size: int = 64,
        actor_head_hidden_size: int | None = 64,
        actor_head_layer_num: int = 1,
        critic_head_hidden_size: int | None = 64,
        critic_head_layer_num: int = 1,
        activation: Activation = "relu",
        norm_type: NormType | None = None,
        sigma_type: SigmaType = "independent",
        initial_sigma: float = 1.0,
        fixed_sigma_value: float = 0.3,
        bound_type: BoundType | None = None,
        orthogonal_init: bool = True,
    ) -> None:
        super().__init__()
        layers: dict[str, Any] = dict(activation=activation, norm_type=norm_type)  # Any: of each keyword its own
        self.encoder = build_encoder(
            obs_shape, encoder_hidden_size_list, kernel_size=encoder_kernel_size, stride=encoder_stride, **layers
        )
        self.core = RecurrentCore(self.encoder.output_size, hidden_size, cell_type=cell_type)
        self.actor_head = build_actor_head(
            hidden_size,
            action_shape,
            action_space=action_space,
            hidden_size=actor_head_hidden_size,
            layer_num=actor_head_layer_num,
            sigma_type=sigma_type,
            initial_sigma=initial_sigma,
            fixed_sigma_value=fixed_sigma_value,
            bound_type=bound_type,
            **layers,
        )
        layers.update(hidden_size=critic_head_hidden_size, layer_num=critic_head_layer_num)
        self.critic_head = DiscreteHead(hidden_size, 1, **layers)
        if orthogonal_init:
            init_actor_critic(self, self.actor_head, self.critic_head)
            for name, parameter in self.core.named_parameters():
                if parameter.dim() > 1:
                    nn.init.orthogonal_(parameter)
                elif "bias" in name:
                    nn.init.zeros_(parameter)

    @property
    def initial_state(self) -> dict[str, Array]:
        """Return the state before an episode, float32 [H] by name."""
        return self.core.initial_state

    def actor(self, x: Any, state: Mapping[str, Tensor]) -> tuple[Tensor, State]:
        """Return (what the action distributions are made of [B, T, P], the state behind the last step)."""
        features, behind = self.core(over_time(self.encoder, x), state)
        return over_time(self.actor_head, features), behind

    def critic(self, x: Any, state: Mapping[str, Tensor]) -> tuple[Tensor, State]:
        """Return (values [B, T], the state behind the last step)."""
        features, behind = self.core(over_time(self.encoder, x), state)
        return over_time(self.critic_head, features).squeeze(2), behind

    def actor_critic(self, x: Any, state: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, State]:
        """Return what `actor` and `critic` do, remembering once: (outputs, values, state)."""
        features, behind = self.core(over_time(self.encoder, x), state)
        return over_time(self.actor_head, features), over_time(self.critic_head, features).squeeze(2), behind

    def forward(self, x: Any, state: Mapping[str, Tensor]) -> dict[str, Any]:
        """Return {'logit': [B, T, P], 'value': [B, T], 'state': that behind the last step, by name}."""
        logit, value, behind = self.actor_critic(x, state)
        return {"logit": logit, "value": value, "state": behind}
