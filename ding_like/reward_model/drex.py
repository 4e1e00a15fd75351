"""D-REX: T-REX whose ranking is made by noise (Brown et al. 2020).

A policy, cloned or trained a little, plays with a share `noise` of its actions drawn at random: the less noise, the
better an episode is held to be. No return and no human judge is needed.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ding_like.reward_model.trex import TREXRewardModel
from ding_like.utils.registries import REWARD_MODEL_REGISTRY


@REWARD_MODEL_REGISTRY.register("drex")
class DREXRewardModel(TREXRewardModel):
    """Reward network that orders episodes by the noise that they were played with."""

    config: dict[str, Any] = dict(
        type="drex",
        # File of demonstrations with a column `noise` (lower is better), or a list of files, worst first.
        data_path="",
    )
    rank_column: ClassVar[str] = "noise"
    rank_sign: ClassVar[int] = -1
