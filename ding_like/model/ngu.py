"""Network of Never Give Up (Badia et al. 2020): values of actions for each of several arms, by a recurrent network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ding_like.model.layers import ObsTensor, RecurrentCore, as_sizes, over_time
from ding_like.model.q_networks import DRQN
from ding_like.types import Array
from ding_like.utils.registries import MODEL_REGISTRY


@MODEL_REGISTRY.register("ngu")
class NGUNetwork(DRQN):
    """Network of DRQN whose recurrent layer is given the arm beside the features (Schaul et al. 2015).

    The arm, one-hot of `num_arms`, is a part of the recurrent state that stays as it is: an episode begins with it, by
    default with the first one.
    """

    def __init__(self, *args: Any, num_arms: int = 32, **settings: Any) -> None:
        (self.num_arms,) = as_sizes("num_arms", num_arms)
        super().__init__(*args, **settings)

    def _build_middle(self, width: int) -> int:
        hidden = super()._build_middle(width)
        self.core = RecurrentCore(width + self.num_arms, hidden, cell_type=self._cell_type)
        return hidden

    @property
    def initial_state(self) -> dict[str, Array]:
        """The recurrent state before an episode, float32 [H] by name, and the arm [N]."""
        return {**self.core.initial_state, "arm": np.eye(self.num_arms, dtype=np.float32)[0]}

    def run(self, obs: ObsTensor, state: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return (action values [B, T, A] for the arm of the state, state behind the last step) of sequences."""
        features = over_time(self.encoder, obs)
        arm = state["arm"].to(features.dtype)
        beside = arm.unsqueeze(1).expand(-1, features.shape[1], -1)
        remembered, behind = self.core(torch.cat([features, beside], dim=2), state)
        values = over_time(self.head, features + remembered if self._res_link else remembered)
        return values, {**behind, "arm": state["arm"]}
