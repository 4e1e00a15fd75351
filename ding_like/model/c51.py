"""Define the network of C51: logits of a distribution over fixed returns, for each action."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ding_like.model.distributional import DistributionalDQN
from ding_like.model.encoder import ObsShape
from ding_like.utils.registries import MODEL_REGISTRY


@MODEL_REGISTRY.register("c51dqn")
class C51DQN(DistributionalDQN):
    """Estimate the distribution of every action's return on `n_atom` returns evenly spaced from `v_min` to `v_max`.

    The other settings are `DistributionalDQN`'s. Raises ConfigError for sizes that do not fit.
    Source: Bellemare et al. 2017, section 4.
    """

    support: Tensor

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int],
        encoder_hidden_size_list: Sequence[int] | None = None,
        *,
        v_min: float = -10.0,
        v_max: float = 10.0,
        n_atom: int = 51,
        **settings: Any,  # DistributionalDQN's, each of its own type
    ) -> None:
        super().__init__(
            obs_shape, action_shape, encoder_hidden_size_list, num_points=n_atom, name="c51dqn", **settings
        )
        self.v_min, self.v_max, self.n_atom = float(v_min), float(v_max), n_atom
        self.register_buffer("support", torch.linspace(self.v_min, self.v_max, n_atom), persistent=False)

    def logits(self, x: Any) -> Tensor:
        """Return logits [B, A, N] of observations [B, O...], a tensor or a dict of them."""
        return self.points(x)

    def forward(self, x: Any) -> dict[str, Tensor]:
        """Return {'logit': expected returns [B, A], 'distribution': probabilities [B, A, N]}."""
        distribution = self.logits(x).softmax(-1)
        return {"logit": distribution @ self.support, "distribution": distribution}
