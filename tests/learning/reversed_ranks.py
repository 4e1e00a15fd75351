"""Control of T-REX's gate: the same demonstrations with their ranks reversed, from which the policy must not learn."""

from __future__ import annotations

from typing import ClassVar

from ding_like.reward_model.trex import TREXRewardModel


class ReversedRanks(TREXRewardModel):
    """T-REX that takes the episodes of the highest rank for the worst."""

    rank_sign: ClassVar[int] = -1
