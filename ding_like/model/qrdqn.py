"""Define the network of QR-DQN: quantiles of the return, for each action."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ding_like.model.distributional import DistributionalDQN
from ding_like.model.encoder import ObsShape
from ding_like.utils.registries import MODEL_REGISTRY


@MODEL_REGISTRY.register("qrdqn")
class QRDQN(DistributionalDQN):
    """Estimate `num_quantiles` quantiles of every action's return, those in the middle of as many equal shares.

    The other settings are `DistributionalDQN`'s. Raises ConfigError for sizes that do not fit.
    Source: Dabney et al. 2018, section 4.
    """

    tau: Tensor

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int],
        encoder_hidden_size_list: Sequence[int] | None = None,
        *,
        num_quantiles: int = 32,
        **settings: Any,  # DistributionalDQN's, each of its own type
    ) -> None:
        super().__init__(
            obs_shape, action_shape, encoder_hidden_size_list, num_points=num_quantiles, name="qrdqn", **settings
        )
        self.num_quantiles = num_quantiles
        self.register_buffer("tau", (torch.arange(num_quantiles) + 0.5) / num_quantiles, persistent=False)

    def quantiles(self, x: Any) -> Tensor:
        """Return quantiles [B, A, N] of observations [B, O...], a tensor or a dict of them."""
        return self.points(x)

    def forward(self, x: Any) -> dict[str, Tensor]:
        """Return {'logit': expected returns [B, A], 'q': quantiles [B, A, N], 'tau': their fractions [N]}."""
        quantiles = self.quantiles(x)
        return {"logit": quantiles.mean(-1), "q": quantiles, "tau": self.tau}
