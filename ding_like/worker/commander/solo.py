"""Command a parallel run under the name that DI-engine's single-policy configs use."""

from __future__ import annotations

from ding_like.utils.registries import COMMANDER_REGISTRY
from ding_like.worker.commander.naive import NaiveCommander


@COMMANDER_REGISTRY.register("solo")
class SoloCommander(NaiveCommander):
    """Be the naive commander."""

    config = {**NaiveCommander.config, "type": "solo"}
