"""Define the network of REINFORCE: a policy, and the baseline beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ding_like.model.encoder import ObsShape
from ding_like.model.vac import VAC, ActionSpace
from ding_like.utils.registries import MODEL_REGISTRY


@MODEL_REGISTRY.register("pg")
class PG(VAC):
    """Hold a policy and a baseline of equal layers that share none, so that neither loss disturbs the other.

    `head_hidden_size` and `head_layer_num` are of both heads; `settings` are VAC's.
    """

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int],
        action_space: ActionSpace = "discrete",
        encoder_hidden_size_list: Sequence[int] | None = None,
        *,
        head_hidden_size: int | None = None,
        head_layer_num: int = 1,
        **settings: Any,  # of each keyword its own
    ) -> None:
        super().__init__(
            obs_shape,
            action_shape,
            action_space=action_space,
            share_encoder=False,
            encoder_hidden_size_list=encoder_hidden_size_list,
            actor_head_hidden_size=head_hidden_size,
            actor_head_layer_num=head_layer_num,
            critic_head_hidden_size=head_hidden_size,
            critic_head_layer_num=head_layer_num,
            **settings,
        )
