"""Define the network of phasic policy gradients: actor and critic apart, and a value that the actor's encoder gives."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ding_like.model.encoder import ObsShape
from ding_like.model.vac import VAC
from ding_like.utils.registries import MODEL_REGISTRY


@MODEL_REGISTRY.register("ppg")
class PPG(VAC):
    """Hold an actor and a critic with an encoder each, and on the actor's encoder an auxiliary head like the critic's.

    `settings` are VAC's. Source: Cobbe et al. 2021, figure 1.
    """

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int],
        **settings: Any,  # of each keyword its own
    ) -> None:
        super().__init__(obs_shape, action_shape, share_encoder=False, **settings)
        self.aux_head = copy.deepcopy(self.critic_head)

    def actor_and_aux(self, x: Any) -> tuple[Tensor, Tensor]:
        """Return what `actor` does and the auxiliary values [B], by one pass of their encoder."""
        features = self.actor_encoder(x)
        return self.actor_head(features), self.aux_head(features).squeeze(1)
